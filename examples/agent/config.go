package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

const (
	configKind       = "KubeletConfiguration"
	configAPIVersion = "kubelet.config.k8s.io/v1beta1"
)

// supported are the fields of KubeletConfiguration that change what this
// agent does. A field that is set and not here is named in a warning.
var supported = []string{
	"apiVersion", "kind",
	"staticPodPath", "staticPodURL", "staticPodURLHeader", "fileCheckFrequency", "httpCheckFrequency", "syncFrequency",
	"containerRuntimeEndpoint", "imageServiceEndpoint", "runtimeRequestTimeout",
	"registryPullQPS", "registryBurst", "serializeImagePulls", "maxParallelImagePulls",
	"podLogsDir", "clusterDomain", "clusterDNS", "resolvConf", "seccompDefault", "maxPods", "podsPerCore",
	"healthzPort", "healthzBindAddress", "crashLoopBackOff", "systemReserved", "kubeReserved", "failCgroupV1", "logging",
}

// loadConfig reads the KubeletConfiguration at path, if any, and merges the
// drop-ins below dir over it, if any. It returns the configuration with the
// kubelet's defaults and a warning for each thing that has no effect.
func loadConfig(path, dir string) (*kubeletconfig.KubeletConfiguration, []string, error) {
	merged := map[string]any{}
	var warnings []string
	if path != "" {
		doc, warn, err := readConfigDocument(path)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, warn...)
		resolvePaths(doc, filepath.Dir(path))
		merged = doc
	}
	if dir != "" {
		drops, err := dropIns(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range drops {
			doc, warn, err := readConfigDocument(p)
			if err != nil {
				return nil, nil, err
			}
			warnings = append(warnings, warn...)
			merged, _ = mergePatch(merged, doc).(map[string]any)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(merged)) {
		if !slices.Contains(supported, field) && merged[field] != nil {
			warnings = append(warnings, fmt.Sprintf("%s is not supported and has no effect", field))
		}
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		return nil, nil, err
	}
	var c kubeletconfig.KubeletConfiguration
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	setConfigDefaults(&c)
	return &c, warnings, validateConfig(&c)
}

// readConfigDocument reads one YAML or JSON file. A field that the type does
// not know, or that stands twice, is a warning, as it is for the kubelet; any
// other mistake is an error.
func readConfigDocument(path string) (map[string]any, []string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, nil, fmt.Errorf("%s: the file is empty; want a %s", path, configKind)
	}
	var warnings []string
	raw, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		lax, laxErr := yaml.YAMLToJSON(b)
		if laxErr != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		warnings = append(warnings, fmt.Sprintf("%s: %v; the last one counts", path, err))
		raw = lax
	}
	doc := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s: want a %s, got %.40q", path, configKind, raw)
	}
	if doc["kind"] != configKind || doc["apiVersion"] != configAPIVersion {
		return nil, nil, fmt.Errorf("%s: kind %q of apiVersion %q; want kind %s of apiVersion %s",
			path, doc["kind"], doc["apiVersion"], configKind, configAPIVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(new(kubeletconfig.KubeletConfiguration)); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) {
			return nil, nil, fmt.Errorf("%s: %s is a %s; want %s", path, typ.Field, typ.Value, typ.Type)
		}
		if !strings.Contains(err.Error(), "unknown field") {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		// One wrong name hides the types behind it, so they are looked at again.
		if err := json.Unmarshal(raw, new(kubeletconfig.KubeletConfiguration)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s; it has no effect", path, strings.TrimPrefix(err.Error(), "json: ")))
	}
	return doc, warnings, nil
}

// resolvePaths makes the main file's relative paths relative to its folder.
func resolvePaths(doc map[string]any, dir string) {
	for _, field := range []string{"staticPodPath", "resolvConf", "podLogsDir"} {
		if p, ok := doc[field].(string); ok && p != "" && !filepath.IsAbs(p) {
			doc[field] = filepath.Join(dir, p)
		}
	}
}

// dropIns lists the *.conf files below dir in lexical order.
func dropIns(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".conf") {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// mergePatch applies a JSON merge patch (RFC 7396).
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
			continue
		}
		t[k] = mergePatch(t[k], v)
	}
	return t
}

// setConfigDefaults fills in the kubelet's defaults (v1beta1) of the fields
// that are used here.
func setConfigDefaults(c *kubeletconfig.KubeletConfiguration) {
	duration := func(d *metav1.Duration, def time.Duration) {
		if d.Duration == 0 {
			d.Duration = def
		}
	}
	duration(&c.SyncFrequency, time.Minute)
	duration(&c.FileCheckFrequency, 20*time.Second)
	duration(&c.HTTPCheckFrequency, 20*time.Second)
	duration(&c.RuntimeRequestTimeout, 2*time.Minute)
	orDefault(&c.RegistryPullQPS, 5)
	if c.RegistryBurst == 0 {
		c.RegistryBurst = 10
	}
	orDefault(&c.SerializeImagePulls, c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	if c.PodLogsDir == "" {
		c.PodLogsDir = "/var/log/pods"
	}
	orDefault(&c.ResolverConfig, "/etc/resolv.conf")
	orDefault(&c.SeccompDefault, false)
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	orDefault(&c.HealthzPort, 10248)
	if c.HealthzBindAddress == "" {
		c.HealthzBindAddress = "127.0.0.1"
	}
}

// orDefault gives an unset field a value.
func orDefault[T any](p **T, def T) {
	if *p == nil {
		*p = &def
	}
}
