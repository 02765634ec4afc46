package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/nodewright/nodewright/network"
)

// Names of capabilities, from the CNI conventions; those of annotations are containerd's.
const (
	portMappings   = "portMappings"
	bandwidth      = "bandwidth"
	dns            = "dns"
	cgroupPath     = "cgroupPath"
	podAnnotations = "io.kubernetes.cri.pod-annotations"
)

type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// limits has rates in bits per second and bursts in bits.
type limits struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// burst is containerd's value: the maximum that the bandwidth plugin accepts.
const burst = math.MaxUint32

// arguments returns the CNI_ARGS of an attachment, in containerd's order. Plugins
// read the pod from them. Empty values are left out.
func arguments(a network.Attachment) ([][2]string, error) {
	args := [][2]string{{"IgnoreUnknown", "1"}}
	for _, f := range []struct{ field, key, value string }{
		{"Namespace", "K8S_POD_NAMESPACE", a.Namespace},
		{"Name", "K8S_POD_NAME", a.Name},
		{"ID", "K8S_POD_INFRA_CONTAINER_ID", a.ID},
		{"UID", "K8S_POD_UID", a.UID},
	} {
		if f.value == "" {
			continue
		}
		if err := checkArg(f.field, f.value); err != nil {
			return nil, err
		}
		args = append(args, [2]string{f.key, f.value})
	}
	return args, nil
}

// capabilities returns the capability arguments that at least one plugin of a list declares, in
// containerd's form.
func capabilities(a network.Attachment, l *list) (map[string]json.RawMessage, error) {
	all := map[string]any{}
	if ports := mappings(a.Ports); len(ports) > 0 {
		all[portMappings] = ports
	}
	if a.Ingress > 0 || a.Egress > 0 {
		var b limits
		if a.Ingress > 0 {
			b.IngressRate, b.IngressBurst = a.Ingress, burst
		}
		if a.Egress > 0 {
			b.EgressRate, b.EgressBurst = a.Egress, burst
		}
		all[bandwidth] = b
	}
	if len(a.DNS.Servers)+len(a.DNS.Searches)+len(a.DNS.Options) > 0 {
		all[dns] = a.DNS
	}
	if a.CgroupParent != "" {
		all[cgroupPath] = a.CgroupParent
	}
	if len(a.Annotations) > 0 {
		all[podAnnotations] = a.Annotations
	}
	given := map[string]json.RawMessage{}
	for name, value := range all {
		if !l.declares(name) {
			continue
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		given[name] = raw
	}
	return given, nil
}

func mappings(ports []network.Port) []portMapping {
	var out []portMapping
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		m := portMapping{HostPort: p.HostPort, ContainerPort: p.ContainerPort, Protocol: strings.ToLower(p.Protocol)}
		if p.HostIP.IsValid() {
			m.HostIP = p.HostIP.String()
		}
		out = append(out, m)
	}
	return out
}

// unserved returns the requests of an attachment that no plugin supports, for its
// pod's events.
func unserved(a network.Attachment, l *list) []string {
	var warnings []string
	if len(mappings(a.Ports)) > 0 && !l.declares(portMappings) {
		warnings = append(warnings, fmt.Sprintf("host ports are not served by network %q", l.name))
	}
	if (a.Ingress > 0 || a.Egress > 0) && !l.declares(bandwidth) {
		warnings = append(warnings, fmt.Sprintf("bandwidth limits are not served by network %q", l.name))
	}
	return warnings
}
