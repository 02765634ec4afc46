package schema

// mark is a marker comment about a field in Kubernetes' sources.
type mark struct {
	list   ListType
	keys   []string
	whole  Relation
	preset any
}

func (m mark) onto(f *Field) {
	if m.list != "" {
		f.List, f.Keys = m.list, m.keys
	}
	if m.preset != nil {
		f.Default = m.preset
	}
	f.Relation = m.whole
}

func keys(names ...string) mark { return mark{list: Map, keys: names} }

const (
	core = "io.k8s.api.core.v1."
	meta = "io.k8s.apimachinery.pkg.apis.meta.v1."
	dra  = "io.k8s.api.resource.v1."
)

// atomicStructs have the marker structType=atomic.
var atomicStructs = []string{
	meta + "OwnerReference", meta + "LabelSelector",
	core + "NodeSelector", core + "NodeSelectorTerm",
	core + "ConfigMapKeySelector", core + "SecretKeySelector", core + "FileKeySelector",
	core + "ObjectFieldSelector", core + "ResourceFieldSelector",
	core + "LocalObjectReference", core + "TypedLocalObjectReference", core + "SecretReference", core + "ObjectReference",
	core + "EvictionResponder",
}

// marks are the markers that are not in struct tags, by model and field.
var marks = map[string]mark{
	core + "ContainerPort.protocol":                                {preset: "TCP"},
	core + "Container.ports":                                       keys("containerPort", "protocol"),
	core + "EphemeralContainer.ports":                              keys("containerPort", "protocol"),
	core + "ContainerRestartRuleOnExitCodes.values":                {list: Set},
	core + "ResourceRequirements.claims":                           keys("name"),
	core + "ResourceStatus.resources":                              keys("resourceID"),
	core + "NodeAllocatableResourceClaimStatus.containers":         {list: Set},
	core + "PodSpec.nodeSelector":                                  {whole: Whole},
	core + "PodSpec.topologySpreadConstraints":                     keys("topologyKey", "whenUnsatisfiable"),
	core + "PodStatus.volumeHealth":                                keys("name"),
	core + "PodVolumeHealth.healthConditions":                      keys("status", "reason"),
	core + "VolumeHealthStatus.healthConditions":                   keys("status", "reason"),
	core + "VolumeMount.bindMountOptions":                          {list: Set},
	core + "NodePodPreemptionPolicy.disableResizePreemption":       {list: Set},
	core + "PodStatus.hostIPs":                                     {list: Atomic},
	core + "PersistentVolumeSpec.claimRef":                         {whole: ByKey},
	core + "PersistentVolumeClaimStatus.allocatedResourceStatuses": {whole: ByKey},
	dra + "DeviceRequestAllocationResult.skipNodeOperations":       {list: Set},
	dra + "AllocatedDeviceStatus.conditions":                       keys("type"),
	dra + "ResourceClaimStatus.devices":                            keys("driver", "device", "pool", "shareID"),
}
