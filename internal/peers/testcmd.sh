#!/bin/bash
# testcmd.sh KUBERNETES KUBECTL DIRECTORY: kubectl's tests of a checkout of Kubernetes, against the
# API server of KUBECONFIG, whose one node is 127.0.0.1. It writes what failed in the Test Anything
# Protocol: a test for each scene that passes, and one for each place of a scene where a command
# fails. Scenes go on behind it. PEERS_FILES names the scenes to run, separated by blanks; all of them.
cd "$1" && export KUBE_JUNIT_REPORT_DIR=$3 TMPDIR=$3 ALLOW_SKEW=1 && source hack/lib/init.sh && source hack/lib/test.sh || exit 1
mkdir -p "$THIS_PLATFORM_BIN"
cp "$2" "$THIS_PLATFORM_BIN/kubectl"
source test/cmd/legacy-script.sh

# set has what fails where errexit is on noted, and nothing ended.
set() { case "$*" in -e*|*-o\ errexit*) expects= ;; +e*|*+o\ errexit*) expects=failures ;; *) builtin set "$@" ;; esac }
builtin set +o errexit +o nounset

# unserved are the words of kinds that the API of a node alone does not have.
unserved='deployment|daemonset|replicaset|statefulset|replicationcontroller|cronjob|service|poddisruption|priorityclass|autoscal|quota|clusterrole|rolebinding|customresource|CRD|certificate|storageclass|kustomize|(^|[^a-z])(pdb|svc|rc|hpa|rs|crd|csr|job|role|widget)s?([^a-z]|$)'

# failed notes the place of a command of a scene, FILE LINE DEPTH, that failed.
failed() {
	[[ -z $expects && $1 == */test/cmd/* && $1 != */legacy-script.sh && $3 == "$depth" ]] || return 0
	sed -n "$2p" "$1" | grep -Eiq "$unserved" && echo "${1##*/}:$2 # skip a kind that is not served" || echo "${1##*/}:$2"
}

record_command() {
	local name=$1 place
	[[ -z ${PEERS_FILES:-} || " $PEERS_FILES " == *" $name "* ]] || return 0
	# Pods stay Pending, as without a kubelet.
	case $name in *cluster_management* | run_nodes_tests) kubectl uncordon 127.0.0.1 ;; *) kubectl cordon 127.0.0.1 ;; esac
	kubectl config set-context "$CONTEXT" --namespace=default
	echo "=== $name"
	(
		depth=$BASH_SUBSHELL expects=
		builtin set -o errtrace
		trap 'failed "${BASH_SOURCE[0]}" "$LINENO" "$BASH_SUBSHELL" >>"$KUBE_TEMP/failed"' ERR
		"$@"
	)
	touch "$KUBE_TEMP/failed"
	grep -q '[0-9]$' "$KUBE_TEMP/failed" || echo "ok 0 $name" >&3
	sort -u "$KUBE_TEMP/failed" | while read -r place; do
		case $place in *skip*) echo "ok 0 $name $place" >&3 ;; *) echo "not ok 0 $name $place" >&3 ;; esac
	done
	rm "$KUBE_TEMP/failed"
	kubectl delete pods,configmaps,secrets,pvc,leases --all --all-namespaces --grace-period=0 --force
}

kube::util::ensure-temp-dir
kube::util::ensure-gnu-sed
trap 'stop-proxy; rm -rf "$KUBE_TEMP"' EXIT
HOME=$KUBE_TEMP CONTEXT=$(kubectl config current-context)
SECURE_API_PORT=$(kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}' | sed 's/.*://')
kubectl config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$TMPDIR/apiserver.crt"
SUPPORTED_RESOURCES=(pods configmaps secrets namespaces nodes persistentvolumes persistentvolumeclaims selfsubjectreviews)
exec 3>&1 >&2
runTests
