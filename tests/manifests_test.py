"""The manifests for Kubernetes say one job, and are what Kubernetes reads.

    manifests_test.py FOLDER

Of a JobSet the fields that are used are compared with those that it has, its Job's template with Kubernetes' schema
(pip's kubernetes-validate, where it is installed). Exit code 77 (skipped, says why) without python3-yaml.
"""

import pathlib
import subprocess
import sys

try:
    import yaml
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

# Of jobset.x-k8s.io/v1alpha2, as far as they are used.
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"failurePolicy", "network", "replicatedJobs", "successPolicy", "startupPolicy", "suspend", "coordinator",
             "managedBy", "ttlSecondsAfterFinished", "volumeClaimPolicies"},
    "spec.failurePolicy": {"maxRestarts", "restartStrategy", "rules"},
    "spec.network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "spec.replicatedJobs": {"name", "replicas", "template", "groupName", "dependsOn"},
    "spec.replicatedJobs.template": {"metadata", "spec"},
}


def known_fields(value, where):
    if isinstance(value, list):
        for each in value:
            known_fields(each, where)
    elif isinstance(value, dict) and where in FIELDS:
        assert set(value) <= FIELDS[where], (where, set(value) - FIELDS[where])
        for name, each in value.items():
            known_fields(each, f"{where}.{name}".lstrip("."))


def main(folder):
    config, claim, jobset = yaml.safe_load_all((pathlib.Path(folder) / "jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet"), jobset
    known_fields(jobset, "")
    name, subdomain = jobset["metadata"]["name"], jobset["spec"]["network"]["subdomain"]
    job, = jobset["spec"]["replicatedJobs"]
    ranks = job["template"]["spec"]["completions"]
    hosts = config["data"]["hosts"].split()
    assert hosts == [f"{name}-{job['name']}-0-{rank}.{subdomain}" for rank in range(ranks)], hosts
    assert job["template"]["spec"]["parallelism"] == ranks  # each waits for all
    pod = job["template"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["AUTODIST_SIZE"] == str(ranks) and variables["AUTODIST_CHIEF"].split(":")[0] == hosts[0], variables
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}, mounts
    assert variables["AUTODIST_CLUSTER"] == mounts["cluster"] + "/" + next(iter(config["data"])), variables
    claims = [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [claim["metadata"]["name"]] and claim["spec"]["accessModes"] == ["ReadWriteMany"], (claims, claim)
    command, = container["args"]
    assert hosts[0] in command and f"--save {mounts['ckpt']} " in command and f"--resume {mounts['ckpt']}" in command
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0, command
    if kubernetes_validate is None:
        print("LEFT OUT: Kubernetes' schema (pip's kubernetes-validate is not installed)")
    else:
        version = kubernetes_validate.latest_version()
        as_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, **job["template"]}
        for each in (config, claim, as_job):
            kubernetes_validate.validate(each, version, strict=True)
        print(f"what Kubernetes {version} reads")
    print(f"a JobSet of {ranks} ranks, whose names, size and files agree")


main(sys.argv[1])
