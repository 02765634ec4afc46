package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	credentialconfig "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/images"
)

// keyrings are the node's own credentials for images: docker's configuration
// file in the root directory and of this user, as the kubelet has it, and the
// credential provider plugins.
func keyrings(f *runFlags) ([]images.Keyring, error) {
	rings := []images.Keyring{images.NewFile(filepath.Join(f.rootDir, "config.json"))}
	if home := os.Getenv("HOME"); home != "" {
		rings = append(rings, images.NewFile(filepath.Join(home, ".docker", "config.json")))
	}
	if f.providerConfig == "" {
		return rings, nil
	}
	plugins, err := readProviders(f.providerConfig)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config=%q: %w", f.providerConfig, err)
	}
	ring, err := images.NewPlugins(images.PluginsConfig{Dir: f.providerDir, Plugins: plugins})
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config=%q: %w", f.providerConfig, err)
	}
	return append(rings, ring), nil
}

const (
	providersVersion = "kubelet.config.k8s.io/v1"
	providersKind    = "CredentialProviderConfig"
	providerVersion  = "credentialprovider.kubelet.k8s.io/v1"
)

// readProviders reads a CredentialProviderConfig and tells every mistake.
func readProviders(path string) ([]images.Plugin, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var conf credentialconfig.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(raw, &conf); err != nil {
		return nil, err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if conf.APIVersion != providersVersion || conf.Kind != providersKind {
		bad("%s of %q: want %s of %s", conf.Kind, conf.APIVersion, providersKind, providersVersion)
	}
	if len(conf.Providers) == 0 {
		bad("providers is empty: want one or more")
	}
	var out []images.Plugin
	for i, p := range conf.Providers {
		if p.APIVersion != providerVersion {
			bad("providers[%d].apiVersion: %q: want %s", i, p.APIVersion, providerVersion)
		}
		if p.TokenAttributes != nil {
			bad("providers[%d].tokenAttributes: service account tokens take an API server; leave it out", i)
		}
		plugin := images.Plugin{Name: p.Name, Match: p.MatchImages, Args: p.Args}
		if p.DefaultCacheDuration == nil {
			bad("providers[%d].defaultCacheDuration is required", i)
		} else {
			plugin.CacheDuration = p.DefaultCacheDuration.Duration
		}
		for _, e := range p.Env {
			plugin.Env = append(plugin.Env, e.Name+"="+e.Value)
		}
		out = append(out, plugin)
	}
	return out, errors.Join(errs...)
}
