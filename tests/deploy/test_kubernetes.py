"""The manifests are what Kubernetes takes, and give blink what it needs: flags, time to drain, memory."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from limits import START_S
from needs import skip_if_missing, with_need

from blink import cli
from nic_frontend.options import FrontendOptions

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
VALIDATE = """
import json, sys, kubernetes_validate
for document in json.load(sys.stdin):
    kubernetes_validate.validate(document, "1.37", strict=True)
"""
Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(document: Object) -> Iterator[Object]:
    """The pods that a document makes, as specs."""
    if document["kind"] == "Deployment":
        yield document["spec"]["template"]["spec"]
    elif document["kind"] == "DynamoGraphDeployment":
        for service in document["spec"]["services"].values():
            spec = dict(service["extraPodSpec"])
            main = {"name": "main", **spec.pop("mainContainer")}
            yield {"containers": [main], **spec}


ALL_PODS = [(path.name, pod) for path in MANIFESTS for document in documents(path) for pod in pods(document)]
COMMANDS = [
    (name, container["args"])
    for name, pod in ALL_PODS
    for container in pod["containers"]
    if container.get("command", ["blink"]) == ["blink"]
]


@pytest.mark.slow
def test_kubernetes_schemas_have_nothing_against_them() -> None:
    checked: list[Object] = []
    for path in MANIFESTS:
        for document in documents(path):
            if document["apiVersion"].startswith(
                "nvidia.com/"
            ):  # whose pods are all that Kubernetes defines of it
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
                checked += [{**pod, "spec": spec} for spec in pods(document)]
            else:
                checked.append(document)
    assert len(checked) > len(MANIFESTS)
    command = with_need("kubernetes", "python", "-c", VALIDATE)
    done = subprocess.run(command, input=json.dumps(checked), capture_output=True, text=True, timeout=START_S)
    skip_if_missing("kubernetes", done)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("name", "words"), COMMANDS)
def test_blink_takes_its_command_line(name: str, words: list[str]) -> None:
    if words[0] == "dynamo":
        pytest.importorskip("dynamo.common")
    words = [word.replace("$(ADDRESS)", "10.0.0.1").replace("$(PORT)", "7471") for word in words]
    assert cli.build_parser(words[0]).parse_args(words)


@pytest.mark.parametrize(("name", "pod"), ALL_PODS)
def test_a_pod_has_the_time_that_it_takes_to_drain(name: str, pod: Object) -> None:
    for container in pod["containers"]:
        drain = [word for word in container.get("args", ()) if word.startswith("--drain-timeout=")]
        if drain:
            before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            assert pod["terminationGracePeriodSeconds"] > before + float(drain[0].partition("=")[2])
            assert float(drain[0].partition("=")[2]) == FrontendOptions.drain_timeout_s


@pytest.mark.parametrize(("name", "pod"), ALL_PODS)
def test_a_backends_ring_has_memory_that_its_readers_share(name: str, pod: Object) -> None:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    for container in pod["containers"]:
        words = " ".join([*container.get("command", ()), *container.get("args", ())])
        if not re.search(r"\b(serve|backend|events|dynamo) (/models|--ring)", words):
            continue
        (shm,) = (mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/dev/shm")
        assert volumes[shm]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}


def test_there_is_a_lease_for_each_frontend_that_can_be_there_at_once() -> None:
    found = {
        document["metadata"]["name"]: document for document in documents(ROOT / "deploy/kubernetes/rdma.yaml")
    }
    frontend, backend = found["blink-frontend"]["spec"], found["blink-backend"]["spec"]
    (leases,) = re.findall(r"--leases=(\d+)", " ".join(backend["template"]["spec"]["containers"][0]["args"]))
    assert int(leases) == frontend["replicas"] + frontend["strategy"]["rollingUpdate"]["maxSurge"]


@pytest.mark.slow
def test_the_images_are_described_in_docker_s_language() -> None:
    source = ROOT / "deploy/containers/Dockerfile"
    program = (
        "import dockerfile, json, sys\n"
        "print(json.dumps([(c.cmd, c.value) for c in dockerfile.parse_file(sys.argv[1])]))"
    )
    command = with_need("dockerfile", "python", "-c", program, str(source))
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
    skip_if_missing("dockerfile", done)
    assert done.returncode == 0, done.stderr
    commands = [(name.upper(), value) for name, value in json.loads(done.stdout)]
    stages = [value[-1] for name, value in commands if name == "FROM"]
    used = {re.sub(r".*/|:.*", "", c["image"]) for _, pod in ALL_PODS for c in pod["containers"]}
    assert used <= set(stages)
    assert [value for name, value in commands if name == "USER"][-1] == ["65532"]
