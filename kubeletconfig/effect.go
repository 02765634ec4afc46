package kubeletconfig

import (
	"fmt"
	"slices"
)

// supported are the fields of KubeletConfiguration that have an effect in a node that consists of
// nodewright's packages. Any other field that is set causes a warning.
var supported = []string{
	"apiVersion", "kind",
	"staticPodPath", "staticPodURL", "staticPodURLHeader", "fileCheckFrequency", "httpCheckFrequency", "syncFrequency",
	"containerRuntimeEndpoint", "imageServiceEndpoint", "runtimeRequestTimeout",
	"registryPullQPS", "registryBurst", "serializeImagePulls", "maxParallelImagePulls",
	"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
	"cpuCFSQuota", "cpuCFSQuotaPeriod", "singleProcessOOMKill",
	"podLogsDir", "podCIDR", "clusterDomain", "clusterDNS", "resolvConf", "seccompDefault", "allowedUnsafeSysctls", "defaultPodSysctls", "maxPods", "podsPerCore",
	"healthzPort", "healthzBindAddress", "crashLoopBackOff", "systemReserved", "kubeReserved", "failCgroupV1", "logging",
	"cgroupsPerQOS", "cgroupRoot", "kubeletCgroups", "systemCgroups", "cgroupDriver", "enforceNodeAllocatable",
	"systemReservedCgroup", "kubeReservedCgroup", "qosReserved", "podPidsLimit",
	"cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs", "memoryManagerPolicy", "reservedMemory",
	"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod",
	"evictionMaxPodGracePeriod", "mergeDefaultEvictionSettings", "localStorageCapacityIsolation",
	"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
	"topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions", "featureGates",

	// Cluster, and clients of the node.
	"address", "port", "readOnlyPort", "enableServer", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsMinVersion", "tlsCurvePreferences",
	"rotateCertificates", "serverTLSBootstrap", "authentication", "authorization",
	"enableDebuggingHandlers", "enableProfilingHandler", "enableContentionProfiling", "volumeStatsAggPeriod", "maxOpenFiles", "enableControllerAttachDetach", "enableSystemLogHandler", "enableSystemLogQuery", "enableDebugFlagsHandler",
	"kubeAPIQPS", "kubeAPIBurst", "eventRecordQPS", "eventBurst", "registerNode", "registerWithTaints", "providerID",
	"nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeStatusMaxImages", "nodeLeaseDurationSeconds",

	// Machine.
	"failSwapOn", "memorySwap", "protectKernelDefaults", "oomScoreAdj", "makeIPTablesUtilChains", "userNamespaces",
	"memoryThrottlingFactor", "memoryReservationPolicy", "featureGates." + gateMemoryQoS, "featureGates." + gateSysctls, "featureGates." + gateDeclared,
	"featureGates.InPlacePodLevelResourcesVerticalScaling", "featureGates.InPlacePodVerticalScalingInitContainers",
	"featureGates.RestartAllContainersOnContainerExits",

	// Garbage collection.
	"imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
	"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",

	"logging.verbosity", "logging.format", "logging.flushFrequency", "logging.vmodule", "logging.options",
}

// reasons explain why some fields that have an effect in the kubelet have none here.
var reasons = map[string]string{
	"tracing":                   "this program is built without a part that sends traces to an OpenTelemetry collector, such as package record/otlp",
	"contentType":               "requests to the API server always use protobuf, or JSON for kinds without protobuf",
	"kernelMemcgNotification":   "the kernel's notifications of memory pressure are always used",
	"cpuManagerReconcilePeriod": "CPU sets are updated after changes, not periodically",
	"configMapAndSecretChangeDetectionStrategy": "ConfigMaps and Secrets are always watched",
	"showHiddenMetricsForVersion":               "no metrics are hidden",
	"volumePluginDir":                           "FlexVolume plugins are not supported; use CSI drivers",
}

// because returns ": " and the reason why a field has no effect, or "" if reasons does not contain
// the field.
func because(field string) string {
	if why := reasons[field]; why != "" {
		return ": " + why
	}
	return ""
}

// noTime is the value that kubeadm writes for an unset duration.
const noTime = "0s"

// withoutEffect returns a warning for each set field that is neither supported nor used.
func withoutEffect(doc map[string]any, used []string) []string {
	var warnings []string
	warn := func(fields map[string]any, prefix string) {
		for field, v := range fields {
			if field = prefix + field; v != nil && v != noTime && !slices.Contains(supported, field) && !slices.Contains(used, field) {
				warnings = append(warnings, oneLine(field)+" is not supported and has no effect"+because(field))
			}
		}
	}
	warn(doc, "")
	logging, _ := doc["logging"].(map[string]any)
	warn(logging, "logging.")
	gates, _ := doc["featureGates"].(map[string]any)
	for name, v := range gates {
		if w := gateWithoutEffect(name, v); w != "" && v != nil && !slices.Contains(used, "featureGates."+name) {
			warnings = append(warnings, "featureGates."+w)
		}
	}
	slices.Sort(warnings)
	if more := len(warnings) - maxMistakes; more > 0 {
		warnings = append(warnings[:maxMistakes], fmt.Sprintf("%d more fields are not supported and have no effect", more))
	}
	return warnings
}
