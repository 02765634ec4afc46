package ocispec

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func (c *compiler) devices() error {
	in, l := c.in, c.spec.Linux
	if in.privileged() {
		l.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		if !in.Handler.PrivilegedWithoutHostDevices {
			for _, d := range in.Machine.Devices {
				c.device(d)
			}
		}
	} else {
		// Denies all devices except those allowed below, and those that every OCI runtime allows.
		l.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	}
	for i, d := range in.Container.GetDevices() {
		field := fmt.Sprintf("devices[%d].", i)
		if !path.IsAbs(d.GetContainerPath()) {
			return invalid(field+"container_path", d.GetContainerPath(), "must be absolute")
		}
		access := d.GetPermissions()
		if access == "" || strings.Trim(access, "rwm") != "" {
			return invalid(field+"permissions", access, "must be made of r, w and m")
		}
		if len(in.Devices[i]) == 0 {
			return unable(field+"host_path", d.GetHostPath(), "there is no device")
		}
		for _, n := range in.Devices[i] {
			c.device(n)
			l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{
				Allow: true, Type: n.Type, Major: new(n.Major), Minor: new(n.Minor), Access: access,
			})
		}
	}
	return nil
}

// device adds a device node to the container. It replaces an earlier node with the same path.
func (c *compiler) device(d Device) {
	l := c.spec.Linux
	l.Devices = slices.DeleteFunc(l.Devices, func(other specs.LinuxDevice) bool { return other.Path == d.Path })
	l.Devices = append(l.Devices, specs.LinuxDevice{
		Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor,
		FileMode: new(os.FileMode(d.Mode).Perm()), UID: new(d.UID), GID: new(d.GID),
	})
}
