package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
)

// devicesOf has the agent use device plugins, find other plugins, and tell who
// has what, all in the kubelet's directories below the root directory. A root
// directory whose path is too long for sockets goes without.
func devicesOf(cfg *agent.Config, log *zap.Logger, reg prometheus.Registerer) error {
	dir := func(name string) string { return filepath.Join(cfg.RootDir, name) }
	sockets, resources := dir("device-plugins"), filepath.Join(dir("pod-resources"), "kubelet.sock")
	if len(resources) > longestSocketPath || len(filepath.Join(sockets, "kubelet.sock")) > longestSocketPath {
		log.Warn("no device plugins, and no pod resources: the path of the root directory is too long for sockets", zap.String("dir", cfg.RootDir))
		return nil
	}
	store, err := openStore(dir("devices"), log)
	if err != nil {
		return err
	}
	m, err := devicemgr.New(devicemgr.Config{
		SocketDir: sockets, Store: store, Machine: cfg.Placement.Machine, Claimed: dra.Claimed, Log: log.Named("devicemgr"), Metrics: reg,
	})
	if err != nil {
		return err
	}
	cfg.Devices, cfg.PodResourcesSocket, cfg.PluginDir = m, resources, dir("plugins_registry")
	return nil
}

// devicesHeader heads the column of devices, if a container would have any.
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
