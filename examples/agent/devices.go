package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/agent/local"
)

// devicesHeader returns the heading of the column of devices; "" if no container would
// get devices.
func devicesHeader(f *local.Fit) string {
	if slices.ContainsFunc(f.Containers, func(c local.FitContainer) bool { return len(c.Devices) > 0 }) {
		return "\tDEVICES"
	}
	return ""
}

// deviceList lists devices by resource, as "example.com/gpu=a+b".
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
