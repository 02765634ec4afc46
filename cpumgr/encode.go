package cpumgr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nodewright/nodewright/numa"
)

// encodingVersion is the version of EncodePod's format. DecodePod rejects others. [Rebuild]
// handles pods whose file cannot be read.
const encodingVersion = 1

// encodedPod is the stored form of a pod, as JSON. Names of fields and kinds are
// part of the format.
type encodedPod struct {
	Version    int                `json:"version"`
	UID        string             `json:"uid"`
	Pool       numa.CPUSet        `json:"pool"`
	Containers []encodedContainer `json:"containers"`
}

type encodedContainer struct {
	Name   string      `json:"name"`
	Kind   string      `json:"kind"`
	CPUs   numa.CPUSet `json:"cpus"`
	Pooled bool        `json:"pooled,omitempty"`
}

// kindNames returns the names of kinds in files, which do not depend on the order of the
// constants.
func kindNames() [3]string {
	return [...]string{numa.Regular: "regular", numa.Init: "init", numa.Sidecar: "sidecar"}
}

// EncodePod returns the CPUs of a pod as a line of JSON, for [DecodePod] and [Rebuild]. Equal
// pods give equal bytes. It is an error if the pod has no CPUs.
func (s State) EncodePod(uid string) ([]byte, error) {
	p, ok := s.pods[uid]
	if !ok {
		return nil, fmt.Errorf("pod %s has no exclusive CPUs", uid)
	}
	kinds := kindNames()
	e := encodedPod{Version: encodingVersion, UID: p.UID, Pool: p.Pool}
	for _, c := range p.Containers {
		if c.Kind < 0 || int(c.Kind) >= len(kinds) {
			return nil, fmt.Errorf("pod %s, container %q: kind %d is unknown", uid, c.Name, c.Kind)
		}
		e.Containers = append(e.Containers, encodedContainer{c.Name, kinds[c.Kind], c.CPUs, c.Pooled})
	}
	return json.Marshal(e)
}

// DecodePod parses the output of [State.EncodePod]. It rejects everything that EncodePod cannot
// have written. [Rebuild] checks whether the CPUs exist and are free.
func DecodePod(data []byte) (PodCPUs, error) {
	var e encodedPod
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&e); err != nil {
		return PodCPUs{}, fmt.Errorf("CPUs of a pod: %w", err)
	}
	// Two lines in one file mean that a write has failed.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return PodCPUs{}, errors.New("CPUs of a pod: there is data after the JSON object")
	}
	if e.Version != encodingVersion {
		return PodCPUs{}, fmt.Errorf("CPUs of a pod: version is %d; want %d", e.Version, encodingVersion)
	}
	if e.UID == "" || len(e.Containers) == 0 {
		return PodCPUs{}, errors.New("CPUs of a pod: uid or containers are missing")
	}
	p := PodCPUs{UID: e.UID, Pool: e.Pool}
	for i, c := range e.Containers {
		own, err := c.decode(e.Pool)
		if err != nil {
			return PodCPUs{}, fmt.Errorf("CPUs of pod %s, container %q: %w", e.UID, c.Name, err)
		}
		// This also excludes two containers with the same name.
		if i > 0 && c.Name <= e.Containers[i-1].Name {
			return PodCPUs{}, fmt.Errorf("CPUs of pod %s: container %q after %q; want ascending names", e.UID, c.Name, e.Containers[i-1].Name)
		}
		p.Containers = append(p.Containers, own)
	}
	return p, nil
}

// decode validates a container, and checks it against the pod's pool.
func (c encodedContainer) decode(pool numa.CPUSet) (ContainerCPUs, error) {
	kind := -1
	for k, name := range kindNames() {
		if name == c.Kind {
			kind = k
		}
	}
	switch {
	case kind < 0:
		return ContainerCPUs{}, fmt.Errorf("kind is %q; want one of %q", c.Kind, kindNames())
	case c.Name == "":
		return ContainerCPUs{}, errors.New("name is empty")
	case c.CPUs.Empty() && !c.Pooled:
		return ContainerCPUs{}, errors.New("cpus is empty")
	case c.Pooled && pool.Empty():
		return ContainerCPUs{}, errors.New("pooled is true, but the pod has no pool")
	case !pool.Empty() && !c.CPUs.SubsetOf(pool):
		return ContainerCPUs{}, fmt.Errorf("cpus are %q; want some of the pod's pool, %q", c.CPUs, pool)
	}
	return ContainerCPUs{Name: c.Name, Kind: numa.Kind(kind), CPUs: c.CPUs, Pooled: c.Pooled}, nil
}
