package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/agent/local"
)

// devicesHeader returns a tab and the heading of the column for devices, or "" if no container
// would get devices.
func devicesHeader(f *local.Fit) string {
	if slices.ContainsFunc(f.Containers, func(c local.FitContainer) bool { return len(c.Devices) > 0 }) {
		return "\tDEVICES"
	}
	return ""
}

// deviceList returns a tab and the devices by resource, such as "example.com/gpu=a+b", or "" if
// there are none.
func deviceList(of map[string][]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, name+"="+strings.Join(of[name], "+"))
	}
	if len(out) == 0 {
		return ""
	}
	return "\t" + strings.Join(out, ",")
}
