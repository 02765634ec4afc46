# A program as people write them with Python's client: pods that are made, watched, read,
# entered and removed. Arguments: a kubeconfig, an image, and a namespace.
import sys

from kubernetes import client, config, watch
from kubernetes.stream import stream

config.load_kube_config(sys.argv[1])
image, namespace = sys.argv[2:4]
v1 = client.CoreV1Api()


def pod(name):
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": "python"}),
        spec=client.V1PodSpec(
            termination_grace_period_seconds=1,
            containers=[client.V1Container(
                name="c", image=image, image_pull_policy="Never", args=["env", ".", "sleep", "1h"],
                env=[client.V1EnvVar(name="COLOR", value="blue")],
                resources=client.V1ResourceRequirements(requests={"cpu": "10m"}))]))


names = ["python-%d" % i for i in range(3)]
for name in names:
    v1.create_namespaced_pod(namespace, pod(name))
try:
    v1.create_namespaced_pod(namespace, pod(names[0]))
    sys.exit("a pod was made twice")
except client.ApiException as e:
    assert e.status == 409, e

ready = set()
events = watch.Watch()
for event in events.stream(v1.list_namespaced_pod, namespace, label_selector="app=python", timeout_seconds=60):
    p = event["object"]
    if any(c.type == "Ready" and c.status == "True" for c in p.status.conditions or []):
        ready.add(p.metadata.name)
    if len(ready) == len(names):
        events.stop()
assert ready == set(names), ready

assert "COLOR=blue" in v1.read_namespaced_pod_log(names[0], namespace)
out = stream(v1.connect_get_namespaced_pod_exec, names[0], namespace, command=["/testbox", "env", "."],
             stdin=False, stdout=True, stderr=True, tty=False)
assert "COLOR=blue" in out, out

v1.patch_namespaced_pod(names[0], namespace, {"metadata": {"labels": {"tier": "web"}}})
assert v1.read_namespaced_pod(names[0], namespace).metadata.labels["tier"] == "web"

page = v1.list_namespaced_pod(namespace, label_selector="app=python", limit=2)
assert len(page.items) == 2 and page.metadata._continue, page
rest = v1.list_namespaced_pod(namespace, label_selector="app=python", limit=2, _continue=page.metadata._continue)
assert {p.metadata.name for p in page.items + rest.items} == set(names)

v1.delete_collection_namespaced_pod(namespace, label_selector="app=python")
events = watch.Watch()
listed = v1.list_namespaced_pod(namespace, label_selector="app=python")
left = {p.metadata.name for p in listed.items}
if left:
    for event in events.stream(v1.list_namespaced_pod, namespace, label_selector="app=python",
                               resource_version=listed.metadata.resource_version, timeout_seconds=60):
        if event["type"] == "DELETED":
            left.discard(event["object"].metadata.name)
        if not left:
            events.stop()
assert not left, left
print("all done with", client.VersionApi().get_code().git_version)
