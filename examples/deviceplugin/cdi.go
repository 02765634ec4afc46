package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cdiSpec has the fields of a Container Device Interface (CDI) specification that the
// plugin uses. The specification describes how the runtime changes a container with a device.
type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string   `json:"name"`
	Edits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Env []string `json:"env"`
}

// cdiName returns the CDI name of a device. It replaces @, which CDI does not allow.
func cdiName(id string) string { return strings.ReplaceAll(id, "@", "-") }

// describe writes the CDI specification of the devices, if the plugin has a CDI directory.
// Each device sets the environment variable CDI_NAME=here in the container.
func (p *plugin) describe(devices map[string]bool) error {
	if p.cdi == "" || len(devices) == 0 {
		return nil
	}
	spec := cdiSpec{Version: "0.6.0", Kind: p.resource}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		name := cdiName(id)
		spec.Devices = append(spec.Devices, cdiDevice{Name: name, Edits: cdiEdits{Env: []string{"CDI_" + name + "=here"}}})
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	path := filepath.Join(p.cdi, "example-deviceplugin.json")
	if had, err := os.ReadFile(path); err == nil && string(had) == string(b) {
		return nil
	}
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
