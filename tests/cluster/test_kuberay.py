"""The manifest of the documentation: the fields that KubeRay has, our versions, and a command that exists."""

import argparse
import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from dac.cli import sweep
from dac.cluster.engines import ray, read_options

MANIFEST = Path(__file__).parents[2] / "docs/kuberay.yaml"
# Fields of ray.io/v1 (KubeRay's rayjob_types.go and raycluster_types.go): name: (type, whether it has to be there)
JOB = {
    "entrypoint": (str, True),
    "submissionMode": (str, False),
    "backoffLimit": (int, False),
    "activeDeadlineSeconds": (int, False),
    "shutdownAfterJobFinishes": (bool, False),
    "ttlSecondsAfterFinished": (int, False),
    "entrypointNumCpus": (float, False),
    "entrypointNumGpus": (float, False),
    "runtimeEnvYAML": (str, False),
    "suspend": (bool, False),
    "rayClusterSpec": (dict, True),
}
CLUSTER = {
    "rayVersion": (str, True),
    "authOptions": (dict, False),
    "enableInTreeAutoscaling": (bool, False),
    "headGroupSpec": (dict, True),
    "workerGroupSpecs": (list, True),
}
HEAD = {"serviceType": (str, False), "rayStartParams": (dict, True), "template": (dict, True)}
WORKERS = {
    "groupName": (str, True),
    "replicas": (int, False),
    "minReplicas": (int, True),
    "maxReplicas": (int, True),
    "numOfHosts": (int, False),
    "rayStartParams": (dict, True),
    "template": (dict, True),
}
POD = {"containers": (list, True), "volumes": (list, False), "terminationGracePeriodSeconds": (int, False)}
CONTAINER = {
    "name": (str, True),
    "image": (str, True),
    "env": (list, False),
    "resources": (dict, True),
    "volumeMounts": (list, False),
}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|Ki|Mi|Gi|Ti)?")


def check(where, found, fields):
    assert isinstance(found, dict), where
    assert set(found) <= set(fields), where
    assert {name for name, (_, needed) in fields.items() if needed} <= set(found), where
    for name, value in found.items():
        assert type(value) is fields[name][0], f"{where}.{name}"


def check_group(where, group, fields):
    check(where, group, fields)
    assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # flags of `ray start`
    pod = group["template"]["spec"]
    check(where, pod, POD)
    (container,) = pod["containers"]
    check(where, container, CONTAINER)
    for kind in ("requests", "limits"):
        for name, quantity in container["resources"][kind].items():
            assert name in ("cpu", "memory", "nvidia.com/gpu")
            assert QUANTITY.fullmatch(quantity), f"{where}: {name}"
    assert container["resources"]["requests"] == container["resources"]["limits"]  # what Ray counts is what there is
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
    assert all(set(entry) == {"name", "value"} and isinstance(entry["value"], str) for entry in container["env"])
    return container


@pytest.fixture
def manifest():
    return yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))


def check_all(manifest):
    """What KubeRay would refuse, and what would not fit together."""
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", manifest["metadata"]["name"])
    job = manifest["spec"]
    check("spec", job, JOB)
    assert job["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode")
    cluster = job["rayClusterSpec"]
    check("rayClusterSpec", cluster, CLUSTER)
    assert cluster["rayVersion"] == metadata.version("ray")
    assert cluster["authOptions"] == {"mode": "token"}
    containers = [check_group("headGroupSpec", cluster["headGroupSpec"], HEAD)]
    for group in cluster["workerGroupSpecs"]:
        containers.append(check_group("workerGroupSpecs", group, WORKERS))
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    (image,) = {container["image"] for container in containers}  # one version of Python, Ray and dac everywhere
    assert image.endswith(f":{cluster['rayVersion']}")
    return job, containers


def test_the_manifest_is_one_that_kuberay_takes(manifest):
    check_all(manifest)


def test_its_command_exists_and_its_populations_fit(manifest, monkeypatch):
    job, (head, worker) = check_all(manifest)
    words = shlex.split(job["entrypoint"])
    assert words[:2] == ["dac", "sweep"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    sweep.add_arguments(parser, words[1:])
    options = parser.parse_args(words[2:])
    assert (options.engine, options.address) == ("ray", "auto")
    made = {}
    monkeypatch.setattr(ray, "RayEngine", lambda address, **more: made.update(more))
    ray.make(None, options.address, read_options(options.option))
    resources = worker["resources"]["limits"]
    assert made["cpus"] / made["gpus"] <= int(resources["cpu"]) / int(resources["nvidia.com/gpu"])
    assert made["gpus"] <= 1
    assert {str(options.file.parent)} == {mount["mountPath"] for mount in head["volumeMounts"]}
    assert str(options.out).startswith(f"{options.file.parent}/")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("groupName: gpu", "name: gpu"),
        ('rayVersion: "2.60.0"', 'rayVersion: "2.9.0"'),
        ("rayStartParams: {}", "rayStartParams: {num-cpus: 8}"),
        ("memory: 64Gi", "memory: 64GB"),
        ("minReplicas: 8", "minReplicas: 9"),
        ("claimName: study }\n    worker", "claimName: study }\n    extra: 1\n    worker"),
        ("- { name: study, mountPath", "- { name: other, mountPath"),
    ],
)
def test_a_wrong_manifest_would_be_noticed(old, new):
    text = MANIFEST.read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(AssertionError):
        check_all(yaml.safe_load(text.replace(old, new)))
