package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// savedFormat is the format of records.
const savedFormat = 1

// maxSaved limits a record, in bytes, as network.Plugin does.
const maxSaved = 256 << 10

// saved is the stored configuration of an attachment. DEL and CHECK use it, even if the
// directory has other configurations meanwhile.
type saved struct {
	Format  int    `json:"format"`
	File    string `json:"file"`       // the file of List
	Version string `json:"cniVersion"` // the used version of List
	List    []byte `json:"list"`       // the list as it was read, with its plugins from files
	IfName  string `json:"ifName"`
	// Args are the CNI_ARGS. Capabilities are the runtimeConfig values that a plugin of List
	// declares.
	Args         [][2]string                `json:"args,omitempty"`
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`

	list *list
}

func (s *saved) encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(b) > maxSaved {
		return nil, fmt.Errorf("configuration and arguments have %d bytes; want at most %d", len(b), maxSaved)
	}
	return b, nil
}

// decodeSaved decodes a record. It refuses every value that encode would not write.
func decodeSaved(b []byte) (*saved, error) {
	s := &saved{}
	if len(b) > maxSaved {
		return nil, fmt.Errorf("record has %d bytes; want at most %d", len(b), maxSaved)
	}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, err
	}
	switch {
	case s.Format != savedFormat:
		return nil, fmt.Errorf("format is %d; want %d", s.Format, savedFormat)
	case s.IfName != ifName:
		return nil, fmt.Errorf("ifName is %q; want %q", clip(s.IfName, 64), ifName)
	}
	l, err := parseList(s.File, s.List)
	if err != nil {
		return nil, fmt.Errorf("parse list: %w", err)
	}
	if !slices.Contains(l.offers, s.Version) {
		return nil, fmt.Errorf("cniVersion is %q; want one of %q", clip(s.Version, 64), l.offers)
	}
	if len(l.plugins) == 0 {
		return nil, fmt.Errorf("list has no plugins")
	}
	for _, kv := range s.Args {
		if err := checkArg(kv[0], kv[1]); err != nil {
			return nil, err
		}
	}
	s.list = l.speaking(s.Version)
	return s, nil
}

// checkArg refuses values that CNI_ARGS cannot express.
func checkArg(key, value string) error {
	if key == "" || len(value) > 1024 || strings.ContainsAny(key+value, ";=") || clip(key+value, 2048) != key+value {
		return fmt.Errorf("%s is %q; want at most 1024 bytes without control characters, semicolons and equals signs", key, clip(value, 64))
	}
	return nil
}

// runtime returns libcni's description of an attachment.
func (s *saved) runtime(id, netns string) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: s.IfName, Args: s.Args, CapabilityArgs: map[string]any{}}
	for _, c := range slices.Sorted(maps.Keys(s.Capabilities)) {
		rt.CapabilityArgs[c] = s.Capabilities[c]
	}
	return rt
}
