package memmgr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nodewright/nodewright/numa"
)

// version is the version of the saved format. It must change when an older agent would misread a
// newer file, or a newer agent an older one.
const version = 1

// ErrPolicy means that a pod was saved under another policy. [Static.Rebuild] restores such a pod
// from its cgroups.
var ErrPolicy = errors.New("saved under another policy")

type savedPod struct {
	Version    int              `json:"version"`
	Policy     string           `json:"policy"`
	Pod        string           `json:"pod"`
	Whole      []savedBlock     `json:"whole,omitempty"`
	Containers []savedContainer `json:"containers"`
}

type savedContainer struct {
	Name   string       `json:"name"`
	Index  int          `json:"index"`
	Kind   string       `json:"kind"`
	Blocks []savedBlock `json:"blocks"`
}

type savedBlock struct {
	Nodes    []int    `json:"nodes"`
	Resource Resource `json:"resource"`
	Bytes    uint64   `json:"bytes"`
}

// kinds are the names of numa.Kind in files.
var kinds = [...]string{numa.Regular: "regular", numa.Init: "init", numa.Sidecar: "sidecar"}

// EncodePod returns the saved form of a pod, with the name of the policy: a few hundred bytes of
// JSON, or nil if the pod has no memory. Equal assignments give equal bytes.
func (s State) EncodePod(uid, policy string) ([]byte, error) {
	e := s.entry(uid)
	if e == nil {
		return nil, nil
	}
	saved := savedPod{Version: version, Policy: policy, Pod: uid, Whole: saveBlocks(e.whole)}
	for _, h := range e.containers {
		saved.Containers = append(saved.Containers, savedContainer{h.name, h.index, kinds[h.kind], saveBlocks(h.blocks)})
	}
	return json.Marshal(saved)
}

func saveBlocks(blocks []Block) []savedBlock {
	var saved []savedBlock
	for _, b := range blocks {
		saved = append(saved, savedBlock{b.Nodes.IDs(), b.Resource, b.Bytes})
	}
	return saved
}

// DecodePod returns s with the pod that [State.EncodePod] has saved. An earlier assignment of the
// pod is replaced. If it fails, it returns s, and the error is [ErrPolicy] or describes the mistake
// in data.
func (s State) DecodePod(uid, policy string, data []byte) (State, error) {
	var saved savedPod
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // they would be lost
	if err := dec.Decode(&saved); err != nil {
		return s, fmt.Errorf("saved memory of pod %s: %w", uid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("saved memory of pod %s: there is data after the JSON object", uid)
	}
	e, err := saved.entry(uid, policy)
	if err != nil {
		return s, fmt.Errorf("saved memory of pod %s: %w", uid, err)
	}
	return s.with(uid, e), nil
}

func (p savedPod) entry(uid, policy string) (*entry, error) {
	switch {
	case p.Version != version:
		return nil, fmt.Errorf("version is %d; want %d", p.Version, version)
	case p.Policy != policy:
		return nil, fmt.Errorf("policy is %q; want %q: %w", p.Policy, policy, ErrPolicy)
	case p.Pod != uid:
		return nil, fmt.Errorf("pod is %q; want %q", p.Pod, uid)
	case len(p.Containers) == 0:
		return nil, errors.New("containers is empty; want one at least")
	}
	var whole []Block
	if len(p.Whole) > 0 {
		var err error
		if whole, err = loadBlocks(p.Whole); err != nil {
			return nil, fmt.Errorf("field whole: %w", err)
		}
	}
	names := map[string]bool{}
	var holders []holder
	for i, c := range p.Containers {
		h, err := c.holder()
		switch {
		case err != nil:
			return nil, fmt.Errorf("containers[%d]: %w", i, err)
		case names[h.name]:
			return nil, fmt.Errorf("containers[%d].name is %q for the second time", i, h.name)
		case i > 0 && h.index <= holders[i-1].index:
			return nil, fmt.Errorf("containers[%d].index is %d after %d; want ascending numbers", i, h.index, holders[i-1].index)
		}
		names[h.name] = true
		holders = append(holders, h)
	}
	return newEntry(whole, holders), nil
}

func (c savedContainer) holder() (holder, error) {
	if c.Name == "" {
		return holder{}, errors.New("name is empty")
	}
	if c.Index < 0 {
		return holder{}, fmt.Errorf("index is %d; want 0 or more", c.Index)
	}
	for kind, name := range kinds {
		if name == c.Kind {
			blocks, err := loadBlocks(c.Blocks)
			return holder{c.Name, c.Index, numa.Kind(kind), blocks}, err
		}
	}
	return holder{}, fmt.Errorf("kind is %q; want one of %q", c.Kind, kinds)
}

func loadBlocks(saved []savedBlock) ([]Block, error) {
	var blocks []Block
	for i, b := range saved {
		var nodes numa.NodeSet
		for _, id := range b.Nodes {
			if id < 0 || id >= numa.MaxNodes || nodes>>id != 0 {
				return nil, fmt.Errorf("blocks[%d].nodes is %v; want ascending numbers from 0 to %d", i, b.Nodes, numa.MaxNodes-1)
			}
			nodes = nodes.With(id)
		}
		blocks = append(blocks, Block{nodes, Amount{b.Resource, b.Bytes}})
	}
	return blocks, checkBlocks(blocks)
}
