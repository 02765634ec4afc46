//go:build linux

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/nodewright/nodewright/internal/manifestguard"
)

// parse parses the text of a specification file, JSON or YAML, and checks it.
func parse(text []byte) (*specs.Spec, error) {
	if n := manifestguard.Values(text); n > maxValues {
		return nil, fmt.Errorf("file has %d values; want at most %d", n, maxValues)
	}
	if err := manifestguard.Aliases(text, maxFile); err != nil {
		return nil, err
	}
	s, err := cdi.ParseSpec(text)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("file is empty")
	}
	return s, check(s)
}

// check rejects what the CDI specification forbids, and what no OCI runtime can apply.
func check(s *specs.Spec) error {
	if err := whole(s); err != nil { // first: the library assumes it
		return err
	}
	if err := specs.ValidateVersion(s); err != nil {
		return err
	}
	vendor, class := parser.ParseQualifier(s.Kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return fmt.Errorf("kind %.200q: %w", s.Kind, err)
	}
	if len(s.Devices) == 0 {
		return errors.New("devices is empty; want at least one")
	}
	if err := checkEdits(&s.ContainerEdits); err != nil {
		return fmt.Errorf("containerEdits: %w", err)
	}
	names := map[string]bool{}
	for i := range s.Devices {
		d := &s.Devices[i]
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return fmt.Errorf("devices[%d].name: %w", i, err)
		}
		if names[d.Name] {
			return fmt.Errorf("devices[%d].name %q: is used twice", i, d.Name)
		}
		names[d.Name] = true
		if err := checkEdits(&d.ContainerEdits); err != nil {
			return fmt.Errorf("devices[%d].containerEdits: %w", i, err)
		}
	}
	// A NUL is not possible in any path, name or variable.
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if bytes.Contains(b, []byte(`\u0000`)) {
		return errors.New("a string contains a NUL")
	}
	return nil
}

// whole returns an error if a list in the specification has an element that is null.
func whole(s *specs.Spec) error {
	all := []*specs.ContainerEdits{&s.ContainerEdits}
	for i := range s.Devices {
		all = append(all, &s.Devices[i].ContainerEdits)
	}
	for _, e := range all {
		if hasNil(e.DeviceNodes) || hasNil(e.NetDevices) || hasNil(e.Hooks) || hasNil(e.Mounts) {
			return errors.New("an element of containerEdits is null")
		}
	}
	return nil
}

func hasNil[T any](list []*T) bool {
	for _, e := range list {
		if e == nil {
			return true
		}
	}
	return false
}

// maxInterface is the length of the longest name of a network interface: IFNAMSIZ without the
// NUL.
const maxInterface = 15

func checkEdits(e *specs.ContainerEdits) error {
	if err := (&cdi.ContainerEdits{ContainerEdits: e}).Validate(); err != nil {
		return err
	}
	for i, d := range e.DeviceNodes {
		if !path.IsAbs(d.Path) || d.HostPath != "" && !path.IsAbs(d.HostPath) {
			return fmt.Errorf("deviceNodes[%d].path %.200q, hostPath %.200q: must be absolute", i, d.Path, d.HostPath)
		}
	}
	for i, m := range e.Mounts {
		if !path.IsAbs(m.ContainerPath) || path.Clean(m.ContainerPath) == "/" {
			return fmt.Errorf("mounts[%d].containerPath %.200q: must be absolute, and not the root", i, m.ContainerPath)
		}
	}
	for i, h := range e.Hooks {
		if !path.IsAbs(h.Path) {
			return fmt.Errorf("hooks[%d].path %.200q: must be absolute", i, h.Path)
		}
		if h.Timeout != nil && *h.Timeout <= 0 {
			return fmt.Errorf("hooks[%d].timeout %d: must be positive", i, *h.Timeout)
		}
	}
	for i, n := range e.NetDevices {
		if len(n.HostInterfaceName) > maxInterface || len(n.Name) > maxInterface {
			return fmt.Errorf("netDevices[%d] %.200q, %.200q: names must have at most %d bytes", i, n.HostInterfaceName, n.Name, maxInterface)
		}
	}
	return nil
}
