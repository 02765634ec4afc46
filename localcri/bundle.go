//go:build linux

package localcri

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/network"
)

type infoOf = network.Info

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// updateBundle writes the resources of a container that has not started to its config.json.
// Updates do not change devices.
func (c *container) updateBundle(r *specs.LinuxResources) error {
	const most = 16 << 20
	b, err := safefile.ReadFile(c.bundle(configFile), most)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if spec.Linux == nil {
		return fmt.Errorf("read configuration: the field linux is missing")
	}
	spec.Linux.Resources = ocispec.KeepRest(r, spec.Linux.Resources)
	if b, err = json.Marshal(spec); err != nil {
		return err
	}
	// Replaced atomically, since a start may read the file at any time.
	dir := durable.Dir{Path: c.bundle(), Disk: durable.OS{DirMode: closed, FileMode: 0o600}}
	return dir.Replace(configFile, b)
}
