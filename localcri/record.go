//go:build linux

package localcri

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// recordVersion is the version of both kinds of records. A record with a later version counts as
// damaged; unknown fields are allowed.
const recordVersion = 1

// sandboxRecord is the stored form of a sandbox.
type sandboxRecord struct {
	sandboxFacts
	life.SandboxRecord
}

// sandboxFacts is the part of a record that does not depend on the sandbox's state.
type sandboxFacts struct {
	Version int           `json:"version"`
	ID      string        `json:"id"`
	Boot    string        `json:"boot"`    // boot of the machine in which it was created
	Created int64         `json:"created"` // ns since 1970
	Handler string        `json:"handler,omitempty"`
	Config  []byte        `json:"config"` // a PodSandboxConfig
	Netns   string        `json:"netns,omitempty"`
	IPs     []string      `json:"ips,omitempty"`
	Infra   *life.Process `json:"infra,omitempty"` // process that holds the shared PID namespace
	// Overhead and Resources have the values of the last UpdatePodSandboxResources.
	Overhead  []byte `json:"overhead,omitempty"`
	Resources []byte `json:"resources,omitempty"`
}

// containerRecord is the stored form of a container: on disk, in the annotations of its
// config.json, and with its monitor.
type containerRecord struct {
	containerFacts
	life.Record
}

// containerFacts is the part of a record that does not depend on the container's state.
type containerFacts struct {
	Version    int        `json:"version"`
	ID         string     `json:"id"`
	Sandbox    string     `json:"sandbox"`
	Boot       string     `json:"boot"`
	Created    int64      `json:"created"` // ns since 1970, like all times
	Config     []byte     `json:"config"`  // a ContainerConfig
	Resources  []byte     `json:"resources,omitempty"`
	Image      string     `json:"image"`               // the image's ID
	ImageName  string     `json:"imageName,omitempty"` // a name with a tag, if the container was created by the ID
	ImageRef   string     `json:"imageRef,omitempty"`  // a name with the digest of the manifest
	MountRefs  []string   `json:"mountRefs,omitempty"` // images of mounts, by index of the mount
	User       userRecord `json:"user"`
	StopSignal string     `json:"stopSignal,omitempty"` // stop signal of the image
	Cgroup     string     `json:"cgroup"`               // relative to the hierarchy's root
}

// userRecord is the user of a container's first process.
type userRecord struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// idLength is the number of hexadecimal digits of an ID.
const idLength = 64

// isID reports whether s is an ID of this package, which is safe as a file name.
func isID(s string) bool {
	if len(s) != idLength {
		return false
	}
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return true
}

var errDamaged = errors.New("record is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
}

// decodeSandbox decodes the record with an ID.
func decodeSandbox(id string, b []byte) (*sandboxRecord, *runtimeapi.PodSandboxConfig, error) {
	var r sandboxRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, nil, damaged("%w", err)
	}
	if r.Version != recordVersion {
		return nil, nil, damaged("version %d; want %d", r.Version, recordVersion)
	}
	if err := r.Check(); err != nil {
		return nil, nil, damaged("%w", err)
	}
	if r.ID != id || !isID(id) || r.Boot == "" {
		return nil, nil, damaged("it is of sandbox %.80q and of boot %.80q", r.ID, r.Boot)
	}
	config := &runtimeapi.PodSandboxConfig{}
	if err := proto.Unmarshal(r.Config, config); err != nil {
		return nil, nil, damaged("configuration: %w", err)
	}
	if config.GetMetadata() == nil {
		return nil, nil, damaged("configuration has no metadata")
	}
	return &r, config, nil
}

// decodeContainer decodes the record with an ID.
func decodeContainer(id string, b []byte) (*containerRecord, *runtimeapi.ContainerConfig, error) {
	var r containerRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, nil, damaged("%w", err)
	}
	if r.Version != recordVersion {
		return nil, nil, damaged("version %d; want %d", r.Version, recordVersion)
	}
	if err := r.Check(); err != nil {
		return nil, nil, damaged("%w", err)
	}
	if r.ID != id || !isID(id) || !isID(r.Sandbox) || r.Boot == "" {
		return nil, nil, damaged("it is of container %.80q in sandbox %.80q and of boot %.80q", r.ID, r.Sandbox, r.Boot)
	}
	config := &runtimeapi.ContainerConfig{}
	if err := proto.Unmarshal(r.Config, config); err != nil {
		return nil, nil, damaged("configuration: %w", err)
	}
	if config.GetMetadata() == nil {
		return nil, nil, damaged("configuration has no metadata")
	}
	if err := proto.Unmarshal(r.Resources, &runtimeapi.LinuxContainerResources{}); err != nil {
		return nil, nil, damaged("resources: %w", err)
	}
	return &r, config, nil
}

// encode returns the JSON of a record.
func encode(r any) []byte {
	b, err := json.Marshal(r)
	if err != nil { // strings, numbers and bytes can always be encoded
		panic("localcri: encode record: " + err.Error())
	}
	return b
}
