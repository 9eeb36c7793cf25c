"""What leaves a run: policies as ONNX, StableHLO or NumPy, datasets, and films (`dac.export.video`)."""

from dac.export.dataset import to_minari as to_minari
from dac.export.numpy_page import to_numpy as to_numpy
from dac.export.onnx_file import to_onnx as to_onnx
from dac.export.stablehlo import to_stablehlo as to_stablehlo
