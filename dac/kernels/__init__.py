"""Fused passes for GPUs, each beside a plain reference that gives the same numbers; nothing in here knows an agent."""
