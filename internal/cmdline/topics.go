package cmdline

import (
	"flag"
	"regexp"
	"strings"
)

// The headings of the flags of an agent that takes the kubelet's.
const (
	own    = "Pods, files and sockets"
	local  = "Container runtime, images and network"
	joined = "Cluster and identity"
	limits = "Limits, eviction and garbage"
	output = "Logs and version"
	fields = "Fields of the configuration file that have a flag"
	unused = "Flags of the kubelet that have no effect here"
)

// AgentTopics is the order of the headings of [AgentTopic].
var AgentTopics = []string{own, local, joined, limits, output, fields, unused}

var agentTopics = []struct {
	names *regexp.Regexp
	topic string
}{
	{regexp.MustCompile(`^(v|vmodule|version|log.*)$`), output},
	{regexp.MustCompile(`kubeconfig|^(cert-dir|cloud-provider|hostname-override|node-ip|node-labels|register-.*|secret.*|provider-id)$`), joined},
	{regexp.MustCompile(`^(network|pods-reach-node|preload-images|registry-hosts|pulls-per-registry|pinned-images|.*runtime-endpoint|image-.*|runtime-cgroups)$`), local},
	{regexp.MustCompile(`evict|^(local-storage-.*|maximum-.*|minimum-.*|pod-log-budget|starts-in-flight|exec-probes-in-flight)$`), limits},
}

// AgentTopic returns the heading of a flag of the agent, by its name. The usage
// texts of package kubeletconfig mark flags that only set a field or have no effect.
func AgentTopic(f *flag.Flag) string {
	switch {
	case strings.HasSuffix(f.Usage, "has no effect"), strings.Contains(f.Usage, "of the kubelet has no effect"):
		return unused
	case strings.HasPrefix(f.Usage, "field "):
		return fields
	}
	for _, t := range agentTopics {
		if t.names.MatchString(f.Name) {
			return t.topic
		}
	}
	return own
}
