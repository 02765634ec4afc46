package ocispec_test

import (
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

func TestWhatDevicesAskFor(t *testing.T) {
	mapped := &specs.Spec{Mounts: []specs.Mount{{Destination: "/x", Options: []string{"rbind", "ridmap"}}}}
	for name, c := range map[string]struct {
		spec    *specs.Spec
		has     ocispec.Handler
		version string
		why     string // "" is no refusal
	}{
		"nothing":                     {&specs.Spec{}, ocispec.Handler{}, "1.0.2", ""},
		"mapped mount":                {mapped, ocispec.Handler{IDMap: true}, "1.1.0", ""},
		"mapped mount, no such thing": {mapped, ocispec.Handler{}, "1.1.0", `mounts "/x"`},
		"network device":              {&specs.Spec{Linux: &specs.Linux{NetDevices: map[string]specs.LinuxNetDevice{"e": {}}}}, ocispec.Handler{NetDevices: true}, "1.3.0", ""},
		"network device, no such thing": {
			&specs.Spec{Linux: &specs.Linux{NetDevices: map[string]specs.LinuxNetDevice{"e": {}}}}, ocispec.Handler{}, "1.3.0", "netDevices",
		},
		"resctrl":                {&specs.Spec{Linux: &specs.Linux{IntelRdt: &specs.LinuxIntelRdt{ClosID: "a"}}}, ocispec.Handler{IntelRdt: true}, "1.0.2", ""},
		"resctrl's newer fields": {&specs.Spec{Linux: &specs.Linux{IntelRdt: &specs.LinuxIntelRdt{Schemata: []string{"L2:0=3"}}}}, ocispec.Handler{IntelRdt: true}, "1.3.0", ""},
		"resctrl, no such thing": {&specs.Spec{Linux: &specs.Linux{IntelRdt: &specs.LinuxIntelRdt{ClosID: "a"}}}, ocispec.Handler{}, "1.0.2", `intelRdt "a"`},
	} {
		if got := ocispec.LeastVersion(c.spec); got != c.version {
			t.Errorf("%s: version %s, want %s", name, got, c.version)
		}
		err := ocispec.CheckEdited(c.spec, c.has)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}
