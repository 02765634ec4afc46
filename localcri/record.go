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

// recordVersion is that of both records. One of a later version is damaged for
// this program; unknown fields are not.
const recordVersion = 1

// sandboxRecord is what is on the disk of a sandbox.
type sandboxRecord struct {
	sandboxFacts
	life.SandboxRecord
}

// sandboxFacts is the part of a record that the state of the sandbox does not change.
type sandboxFacts struct {
	Version int           `json:"version"`
	ID      string        `json:"id"`
	Boot    string        `json:"boot"`    // the machine's boot that it was made in
	Created int64         `json:"created"` // ns since 1970
	Handler string        `json:"handler,omitempty"`
	Config  []byte        `json:"config"` // a PodSandboxConfig
	Netns   string        `json:"netns,omitempty"`
	IPs     []string      `json:"ips,omitempty"`
	Infra   *life.Process `json:"infra,omitempty"` // of a shared PID namespace
	// Overhead and Resources are what UpdatePodSandboxResources told last.
	Overhead  []byte `json:"overhead,omitempty"`
	Resources []byte `json:"resources,omitempty"`
}

// containerRecord is what is on the disk of a container, in the annotations of
// its config.json, and with its monitor.
type containerRecord struct {
	containerFacts
	life.Record
}

// containerFacts is the part of a record that the state of the container does not
// change.
type containerFacts struct {
	Version    int        `json:"version"`
	ID         string     `json:"id"`
	Sandbox    string     `json:"sandbox"`
	Boot       string     `json:"boot"`
	Created    int64      `json:"created"` // ns since 1970, as all times
	Config     []byte     `json:"config"`  // a ContainerConfig
	Resources  []byte     `json:"resources,omitempty"`
	Image      string     `json:"image"`               // its ID
	ImageName  string     `json:"imageName,omitempty"` // with a tag, of a container that was created by the ID
	ImageRef   string     `json:"imageRef,omitempty"`  // with the digest of its manifest
	MountRefs  []string   `json:"mountRefs,omitempty"` // of the images of mounts, by the mounts' index
	User       userRecord `json:"user"`
	StopSignal string     `json:"stopSignal,omitempty"` // the image's
	Cgroup     string     `json:"cgroup"`               // below the hierarchy's root
}

// userRecord is whom a container's first process runs as.
type userRecord struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// idLength is the hexadecimal digits of an ID.
const idLength = 64

// isID reports whether something is an ID that this package makes: it is safe
// as a file's name.
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

// decodeSandbox reads the record of an ID.
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

// decodeContainer reads the record of an ID.
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

// encode makes the bytes of a record.
func encode(r any) []byte {
	b, err := json.Marshal(r)
	if err != nil { // strings, numbers and bytes always have a form
		panic("localcri: encode record: " + err.Error())
	}
	return b
}
