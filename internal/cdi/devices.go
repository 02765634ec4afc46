//go:build linux

package cdi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// devices are the devices of all specifications at one point in time.
type devices struct {
	byName map[string]*device
	// refused has, for each ignored file, its path and the reason.
	refused []string
}

type device struct {
	path     string // of the specification file
	priority int    // of the file's directory
	file     *specs.Spec
	edits    *specs.ContainerEdits
	rival    string // path of another file of the same priority that defines the same device
}

// add adds the devices of the specification at path. If a device of the same name exists, the one
// with the higher priority is kept.
func (d *devices) add(path string, priority int, s *specs.Spec) {
	for i := range s.Devices {
		name, next := s.Kind+"="+s.Devices[i].Name, &device{path: path, priority: priority, file: s, edits: &s.Devices[i].ContainerEdits}
		if old := d.byName[name]; old != nil && old.priority == priority {
			next.rival = old.path
		}
		d.byName[name] = next
	}
}

// of returns the devices of a kind, sorted by name, without those that find refuses.
func (d *devices) of(kind string) []Device {
	var list []Device
	for name, found := range d.byName {
		of, rest, _ := strings.Cut(name, "=")
		if of != kind || found.rival != "" {
			continue
		}
		next := Device{Name: rest}
		for _, n := range found.edits.DeviceNodes {
			next.Nodes = append(next.Nodes, cmp.Or(n.HostPath, n.Path))
		}
		list = append(list, next)
	}
	slices.SortFunc(list, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// inject applies the edits of the named devices to spec. It may change spec even if it
// returns an error.
func (d *devices) inject(spec *oci.Spec, names []string) error {
	var done []string
	seen := map[*specs.Spec]bool{}
	for _, name := range names {
		if slices.Contains(done, name) {
			continue
		}
		done = append(done, name)
		found, err := d.find(name)
		if err != nil {
			return err
		}
		edits := []*specs.ContainerEdits{found.edits}
		if !seen[found.file] { // the edits for all devices of a file come first
			seen[found.file] = true
			edits = []*specs.ContainerEdits{&found.file.ContainerEdits, found.edits}
		}
		for _, e := range edits {
			if err := apply(spec, e); err != nil {
				return fmt.Errorf("device %q of %s: %w", name, found.path, err)
			}
		}
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if len(b) > maxSpec {
		return fmt.Errorf("%w: %d bytes; want at most %d", errTooLarge, len(b), maxSpec)
	}
	return nil
}

// apply applies a copy of edits to spec. A copy is needed since the library adds device numbers
// to the edits, and these numbers may change later.
func apply(spec *oci.Spec, edits *specs.ContainerEdits) error {
	own, err := clone(edits)
	if err != nil {
		return err
	}
	return (&cdi.ContainerEdits{ContainerEdits: own}).Apply(spec)
}

// maxShown is the number of files that an error names.
const maxShown = 3

func (d *devices) find(name string) (*device, error) {
	if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
		return nil, fmt.Errorf("device %.200q: want vendor/class=name: %w", name, err)
	}
	found := d.byName[name]
	switch {
	case found == nil && len(d.refused) > 0:
		return nil, fmt.Errorf("device %q is unknown; set aside: %s", name, strings.Join(d.refused[:min(maxShown, len(d.refused))], "; "))
	case found == nil:
		return nil, fmt.Errorf("device %q is unknown", name)
	case found.rival != "":
		return nil, fmt.Errorf("device %q is in both %s and %s", name, found.rival, found.path)
	}
	return found, nil
}
