// Package differences is the list of what a node made of this module does otherwise
// than the kubelet of Kubernetes 1.37, on purpose or for now: what, why, and since
// when. docs/kubelet-differences.md and agent --help=differences are made of it.
package differences

import (
	"fmt"
	"io"
	"strings"
)

// Difference is one of them.
type Difference struct {
	What, Why string
	Since     string // the release of this module; "" for the first one
}

// Area is a list of differences about one thing.
type Area struct {
	Name        string
	Differences []Difference
}

// first is the release that everything is of that names no other.
const first = "first version"

// All lists them, those that concern configuration first.
func All() []Area {
	return []Area{
		{"Flags", []Difference{
			{What: "--runonce is refused.", Why: "The kubelet refuses runOnce: true as well; with the flag the agent would seem to end by itself."},
			{What: "Beside --lock-file, the root directory and that of the certificates are locked always; podLogsDir, cgroupRoot, the runtime and ports that another agent of the machine uses are refused, with the field to set.", Why: "A second agent by mistake does not start, and touches nothing."},
			{What: "Flags of cAdvisor, and those that the kubelet itself has given up, have no effect, with a warning.", Why: "There is no cAdvisor; the flags stay so that units of systemd need no change."},
			{What: "Without --config the defaults are those of the file: no anonymous access, authorization by webhook, no read-only port.", Why: "The kubelet's older defaults let everybody in, depending on how it is configured."},
			{What: "--v has two steps, below 4 and from 4 on.", Why: "Lines are for people who run a node, or for those who look for a mistake in the agent."},
		}},
		{"Configuration", []Difference{
			{What: "A field without an effect is named in a warning, and so is one that nobody knows.", Why: "The kubelet is silent about most of them."},
			{What: "Defaults that follow from other fields follow from what drop-ins say, too, and relative paths are resolved in the main file alone.", Why: "The kubelet derives them from the main file before drop-ins are read."},
			{What: "failCgroupV1 is false by default.", Why: "Small machines have cgroup v1 for as long as they live."},
			{What: "A feature gate that is known and has no effect is named in a warning where it is set to what is not done; an unknown one, and a locked one that is set otherwise, is refused as by the kubelet.", Why: "Gates of Kubernetes 1.37 are decided here: what is done is done always, but for the gates of gatesWithEffect."},
			{What: "ContainerStopSignals, EventedPLEG, QOSReserved and RuntimeClassInImageCriApi are on.", Why: "They are complete here, and cost nothing where nobody asks for them."},
			{What: "HugepageAwareEviction and KubeletInUserNamespace are off.", Why: "On cgroup v2 the memory of a node that is available never has huge pages in it, and on v1 it has; the agent runs as root of its machine."},
			{What: "What Kubernetes 1.37 has as alpha and off is not done, but for defaultPodSysctls: GRPCContainerProbeTLS (KEP-4939), H2CContainerProbe (KEP-5999), EmptyDirVolumeMode (KEP-5502), VolumeBindMountOptions (KEP-5855), AtomicWriteVolumeUserFields (KEP-5936), DRAOptionalNodeOperations (KEP-5945), InPlacePodVerticalScalingMemoryBackedVolumes (KEP-6030) and checkpoints of pods.", Why: "Their fields may still change; a gate that is set to true is named in a warning."},
			{What: "PodCertificateRequest is off unless it is set.", Why: "API servers before Kubernetes 1.37 serve the requests only where that is asked of them; these are made in certificates.k8s.io/v1, and in v1beta1 where there is no v1."},
			{What: "tracing has no effect.", Why: "An OTLP client would weigh more than the rest of the agent; metrics and logs tell of the same."},
			{What: "A negative volumeStatsAggPeriod leaves volumes out of figures but for emptyDirs; a positive one has no effect.", Why: "Volumes are measured when somebody asks, and emptyDirs may have limits that the agent keeps."},
			{What: "maxOpenFiles unset leaves the process's limit alone.", Why: "The Go runtime raises it to what the machine allows; containers have that of the runtime."},
			{What: "configMapAndSecretChangeDetectionStrategy, contentType, cpuManagerReconcilePeriod, kernelMemcgNotification and showHiddenMetricsForVersion have no effect.", Why: "Objects are watched, in protobuf; CPU sets are put right by events; the kernel always reports pressure; no metrics are hidden."},
			{What: "volumePluginDir and FlexVolumes have no effect.", Why: "CSI drivers take their place."},
		}},
		{"Node API", []Difference{
			{What: "Without an API server HTTPS is served if authorization.mode is AlwaysAllow and somebody can say who they are; else there is no port, and the log says why.", Why: "The kubelet does not start then, and with its defaults a node that stands alone never would."},
			{What: "Without an API server authentication.webhook has no effect, with a warning.", Why: "The kubelet does not start; certificates and anonymous access work without anybody to ask."},
			{What: "Paths with empty elements or dots are refused, and nobody is redirected.", Why: "What decides about a path and what serves it see the same one."},
			{What: "Each endpoint has its own deadline and its own number of requests at a time (429).", Why: "The kubelet has 4 hours for all, so that slow clients pin connections."},
			{What: "HEAD is asked as get, and answered.", Why: "The kubelet asks the authorizer for no verb at all."},
			{What: "/configz and /flagz withhold headers and passwords of URLs.", Why: "They are read by more people than may have these."},
			{What: "The pods API (PodsAPI, KEP-4188) is not served.", Why: "/pods of the node API has the same pods, though no watch."},
			{What: "/allocatedPods (KubeletAllocatedPodsEndpoint, alpha) is not served.", Why: "It is off in the kubelet as well; containerStatuses of /pods have what is allocated."},
			{What: "Structured /flagz and /statusz have no CBOR.", Why: "JSON and YAML are what people's tools read."},
		}},
		{"Metrics", []Difference{
			{What: "kubelet_pod_start_sli_duration_seconds leaves out once what is both a pull and an init container's time, and never is below 0.", Why: "The kubelet takes such time off twice, as it starts containers one after another."},
			{What: "kubelet_pod_start_duration_seconds leaves out pods that ran before the agent did.", Why: "The kubelet counts each of them as a start when it begins."},
			{What: "kubernetes_feature_enabled says what is done, of gates without an effect as well.", Why: "It would not help anybody to hear what is set and not done."},
			{What: "registered_metrics_total, hidden_metrics_total and disabled_metrics_total are not there.", Why: "They count stability levels of component-base, which has no part in the agent."},
			{What: "rest_client_transport_* and rest_client_exec_plugin_* are not there.", Why: "client-go keeps them for all clients of a process; two agents in one would share them."},
			{What: "kubelet_pleg_discard_events, kubelet_cri_losing_support and kubelet_imagemanager_inmemory_* are not there.", Why: "No events are dropped, no older version of the CRI is spoken, and records of images are read from disk."},
			{What: "workqueue_*, informer_*, leader_election_* and running_managed_controllers are not there.", Why: "The kubelet's libraries register them; it never sets them."},
			{What: "kubelet_pod_infeasible_resizes_total has the details not_resizable, insufficient_node_allocatable and other beside the kubelet's.", Why: "The kubelet counts some causes only."},
		}},
		{"Logs", []Difference{
			{What: "Without logging.format, the log is in columns for people.", Why: "text and json are as Kubernetes' components write them, when one of them is asked for."},
			{What: "In text, strings of several lines are quoted.", Why: "What a pod says stays on one line, and cannot pass for another."},
		}},
		{"Images", []Difference{
			{What: "How long images have gone unused is remembered over a restart: imageMaximumGCAge counts on, and may remove images as soon as all pods are known.", Why: "The kubelet begins to count anew at each start."},
			{What: "A pull secret counts by its content, and not by its name.", Why: "Whoever may write a secret could use an image that the registry refuses them."},
			{What: "A credential provider that requires service accounts is refused without an API server.", Why: "It would never be asked."},
			{What: "A token for a credential provider that is of another UID than the service account has is refused.", Why: "What was pulled with it would be on record for the wrong account."},
		}},
		{"Pods", []Difference{
			{What: "Pods begin in the order of nodewright.io/after and nodewright.io/start-priority; while the machine is busy, lesser ones wait for up to 30 s for those of higher priority.", Why: "After a power cut the important pods come up as soon as if they were alone."},
			{What: "A ConfigMap, Secret or projected volume that was filled before the agent was restarted stays usable while its objects are gone or cannot be asked for; the failure is an event.", Why: "The kubelet starts no container of the pod again until they are there, though it would have done so without the restart."},
			{What: "A CSI driver that says that a volume is published, and has made nothing at its path, is not believed; the pod waits.", Why: "The kubelet runs it, and what it writes is on the node's own disk."},
			{What: "A pod with policy Never whose sandbox is lost, as in a reboot, begins anew if none of its regular containers has begun and no init container has failed; if some have, it fails.", Why: "With the kubelet it is Pending for ever."},
			{What: "Crash loops outlive the agent, and have a back-off of their own for RestartAllContainers.", Why: "The kubelet forgets them and restarts everything at once."},
			{What: "Static pods may refer to ConfigMaps, Secrets, claims and tokens, and may be resized.", Why: "Manifests hold these objects, and without an API server such pods are all there are."},
			{What: "Containers start together where no postStart hook stands between them.", Why: "Pods start sooner."},
			{What: "A request that cannot be served now waits, for pods that are ending, for plugins and for objects.", Why: "The kubelet fails the pod, and somebody has to make another."},
			{What: "A critical pod that has others end waits for them, and ends nobody if they would not be enough; static ones that ended for it begin again when it is gone.", Why: "The kubelet kills them one after the other in its loop, and forgets static ones."},
			{What: "A pod that was evicted or preempted is Failed, also if its containers exited with 0.", Why: "The kubelet publishes Succeeded then, and a Job counts its work as done."},
			{What: "Whether a pod fits is decided before its CPUs, memory and devices are placed: one that asks for more memory than the node has is rejected as OutOfmemory.", Why: "The kubelet places first, and rejects it as UnexpectedAdmissionError under a static memory policy; only then does kubelet_memory_manager_pinning_errors_total count it."},
			{What: "What a CSI driver says of the health of a volume (CSIVolumeHealth, alpha) is a warning event of its pods, always; status.volumeHealth of pods and status.storageHealth of the CSINode are not written.", Why: "The gate is off in the kubelet, which then asks no driver; the fields may still change."},
			{What: "A share of swap follows a resize in place.", Why: "The share is one of the memory request."},
		}},
		{"Node", []Difference{
			{What: "Without a runtime's endpoint and without a usual socket the agent runs containers itself (containerRuntimeEndpoint: localcri); a node keeps the runtime that its pods are on.", Why: "A small machine needs no daemon beside the agent, and a runtime that is only late must not have its pods run twice."},
			{What: "Kernel parameters that cannot be set are an event of the node (KubeletSetupFailed).", Why: "The kubelet does not start then, and all pods wait for one parameter."},
			{What: "A flush of the firewall is noticed by looking at the rules, once a minute.", Why: "The kubelet keeps canary chains beside its own."},
			{What: "ResourceSlices are deleted when their driver has not been connected for 30 s, at the start too.", Why: "The kubelet deletes all of them at each start, so that its drivers have to publish them again."},
			{What: "A pod of which only the runtime knows, as one whose manifest went while the agent was away, has the grace period that its containers were made with, and not a second.", Why: "Nobody asked for less, and its manifest may come back meanwhile."},
			{What: "A runtime that is lost keeps the node ready for 30 s.", Why: "One that restarts would cost all pods their readiness."},
			{What: "Certificates that have expired are presented nevertheless, and the process goes on.", Why: "The kubelet ends, and with it the care for pods."},
			{What: "Calls wait for the first certificate.", Why: "The kubelet makes them as system:anonymous."},
			{What: "Of the kubelet's state files, kubelet_internal_checkpoint (devices), cpu_manager_state, memory_manager_state, dra_manager_state and allocated_pods_state are read when the kubelet wrote them last, and kept up to date where they are; those of CPUs and memory are made as well under a static policy. What is wrong with one, or one of another policy, is a warning. actuated_pods_state stays as it is.", Why: "The agent's own files are checked and survive a crash at any moment. The kubelet's are for a kubelet that goes on from there, and for tools that read them; the kubelet does not start with a damaged one, or one of another policy."},
		}},
	}
}

// Markdown is the document of them all.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Differences to the kubelet\n\nWhat a node of nodewright does otherwise than the kubelet of Kubernetes 1.37. This file is made of\n" +
		"`internal/differences` (`go generate ./internal/differences`); `agent --help=differences` shows the same.\n")
	for _, a := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n| What | Why | Since |\n|---|---|---|\n", a.Name)
		for _, d := range a.Differences {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(d.What), cell(d.Why), d.since())
		}
	}
	return b.String()
}

// Print writes them for a terminal.
func Print(w io.Writer) error {
	for i, a := range All() {
		head := a.Name
		if i > 0 {
			head = "\n" + head
		}
		if _, err := fmt.Fprintln(w, head); err != nil {
			return err
		}
		for _, d := range a.Differences {
			if _, err := fmt.Fprintf(w, "  - %s\n      %s (%s)\n", d.What, d.Why, d.since()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d Difference) since() string {
	if d.Since == "" {
		return first
	}
	return d.Since
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
