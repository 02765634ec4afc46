//go:build linux

package cdi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// devices are those that the specifications of a moment have.
type devices struct {
	byName map[string]*device
	// refused says of each file that was set aside why, with its path.
	refused []string
}

type device struct {
	path     string // of its file
	priority int    // that of the file's directory
	file     *specs.Spec
	edits    *specs.ContainerEdits
	rival    string // path of another file of this priority that has the name as well
}

// add enters the devices of a specification. One of a higher priority wins.
func (d *devices) add(path string, priority int, s *specs.Spec) {
	for i := range s.Devices {
		name, next := s.Kind+"="+s.Devices[i].Name, &device{path: path, priority: priority, file: s, edits: &s.Devices[i].ContainerEdits}
		if old := d.byName[name]; old != nil && old.priority == priority {
			next.rival = old.path
		}
		d.byName[name] = next
	}
}

// inject changes spec, also when it returns an error.
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
		if !seen[found.file] { // what all of its devices have in common comes first
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

// apply makes changes. They are copied, since the library completes them in place,
// and devices change their numbers.
func apply(spec *oci.Spec, edits *specs.ContainerEdits) error {
	own, err := clone(edits)
	if err != nil {
		return err
	}
	return (&cdi.ContainerEdits{ContainerEdits: own}).Apply(spec)
}

// maxShown is how many files an error names.
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
