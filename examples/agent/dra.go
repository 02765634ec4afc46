package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/dra"
)

// withDRA gives the agent dynamic resource allocation, with the ResourceClaims
// of the manifests, and drivers that register where the kubelet's do.
func withDRA(cfg *agent.Config, log *zap.Logger, reg prometheus.Registerer) error {
	store, err := openStore(filepath.Join(cfg.RootDir, "dra"), log)
	if err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Warn("it is not known whether the machine was booted since; what no running pod uses is prepared again", zap.Error(err))
	}
	cfg.ManifestClaims = &agent.ManifestClaims{}
	m, err := dra.New(dra.Config{
		Store: store, Claims: cfg.ManifestClaims, Boot: strings.TrimSpace(string(boot)), Log: log.Named("dra"), Metrics: reg,
	})
	if err != nil {
		return err
	}
	cfg.DRA = m
	if cfg.PluginDir == "" {
		cfg.PluginDir = filepath.Join(cfg.RootDir, "plugins_registry")
	}
	return nil
}
