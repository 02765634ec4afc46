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
	kjson "sigs.k8s.io/json"
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
	"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
	"cpuCFSQuota", "cpuCFSQuotaPeriod", "singleProcessOOMKill",
	"podLogsDir", "clusterDomain", "clusterDNS", "resolvConf", "seccompDefault", "maxPods", "podsPerCore",
	"healthzPort", "healthzBindAddress", "crashLoopBackOff", "systemReserved", "kubeReserved", "failCgroupV1", "logging",
	"cgroupsPerQOS", "cgroupRoot", "kubeletCgroups", "systemCgroups", "cgroupDriver", "enforceNodeAllocatable", "systemReservedCgroup", "kubeReservedCgroup", "qosReserved", "podPidsLimit",
	"cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs", "memoryManagerPolicy", "reservedMemory",
	"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod",
	"evictionMaxPodGracePeriod", "mergeDefaultEvictionSettings", "localStorageCapacityIsolation",
	"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
	"topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions", "featureGates",
}

// loadConfig reads the KubeletConfiguration at path, if any, and merges the
// drop-ins below dir over it, if any. It returns the configuration with the
// kubelet's defaults and a warning for each thing that has no effect.
func loadConfig(path, dir string) (*kubeletconfig.KubeletConfiguration, []string, error) {
	var files, warnings []string
	if path != "" {
		files = append(files, path)
	}
	if dir != "" {
		drops, warn, err := dropIns(dir)
		if err != nil {
			return nil, nil, err
		}
		files, warnings = append(files, drops...), append(warnings, warn...)
	}
	merged := map[string]any{}
	origin := map[string]string{} // of each field: the file that set it last
	for _, file := range files {
		doc, warn, err := readConfigDocument(file)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, warn...)
		if file == path {
			if err := resolvePaths(doc, path); err != nil {
				return nil, nil, err
			}
		}
		for field := range doc {
			origin[field] = file
		}
		merged, _ = mergePatch(merged, doc).(map[string]any)
	}
	warnings = append(warnings, withoutEffect(merged)...)
	c := new(kubeletconfig.KubeletConfiguration)
	if _, err := decodeConfig(merged, c); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	setConfigDefaults(c)
	return c, warnings, validateConfig(c, origin)
}

// withoutEffect names the fields that are set and not supported.
func withoutEffect(doc map[string]any) []string {
	var fields []string
	for field, v := range doc {
		if v != nil && !slices.Contains(supported, field) && !slices.Contains(clusterFields, field) && !slices.Contains(gcFields, field) {
			fields = append(fields, field)
		}
	}
	logging, _ := doc["logging"].(map[string]any)
	for field, v := range logging {
		if v != nil && field != "verbosity" {
			fields = append(fields, "logging."+field)
		}
	}
	gates, _ := doc["featureGates"].(map[string]any)
	for gate := range gates {
		if !slices.Contains(placementGates, gate) && !slices.Contains(serverGates, gate) {
			fields = append(fields, "featureGates."+gate)
		}
	}
	slices.Sort(fields)
	for i := range fields {
		fields[i] += " is not supported and has no effect"
	}
	return fields
}

// readConfigDocument reads one YAML or JSON file. A field that the type does
// not know, or that stands twice, is a warning, as it is for the kubelet; any
// other mistake is an error.
func readConfigDocument(path string) (map[string]any, []string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return parseConfigDocument(path, b)
}

func parseConfigDocument(path string, b []byte) (map[string]any, []string, error) {
	var warnings []string
	warn := func(format string, args ...any) {
		warnings = append(warnings, path+": "+fmt.Sprintf(format, args...))
	}
	raw, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		lax, laxErr := yaml.YAMLToJSON(b)
		if laxErr != nil {
			return nil, nil, fmt.Errorf("%s: %s", path, oneLine(laxErr.Error()))
		}
		warn("%s; the last one counts", oneLine(err.Error()))
		raw = lax
	}
	if string(raw) == "null" {
		return nil, nil, fmt.Errorf("%s: the file is empty; want kind %s of apiVersion %s", path, configKind, configAPIVersion)
	}
	doc := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s: want a %s, got %.40q", path, configKind, raw)
	}
	if doc["kind"] != configKind || doc["apiVersion"] != configAPIVersion {
		return nil, nil, fmt.Errorf("%s: kind %s of apiVersion %s; want kind %s of apiVersion %s",
			path, show(doc["kind"]), show(doc["apiVersion"]), configKind, configAPIVersion)
	}
	if moreDocuments(b) {
		warn("only the first YAML document counts")
	}
	unknown, err := decodeConfig(doc, new(kubeletconfig.KubeletConfiguration))
	if err != nil {
		errs := wrongFields(doc)
		if len(errs) == 0 { // no field is wrong by itself
			errs = []error{err}
		}
		for i := range errs {
			errs[i] = fmt.Errorf("%s: %w", path, errs[i])
		}
		return nil, nil, errors.Join(errs...)
	}
	for _, u := range unknown {
		warn("%v; it has no effect", u)
	}
	maps.DeleteFunc(doc, func(field string, _ any) bool {
		return slices.ContainsFunc(unknown, func(u error) bool { return u.Error() == fmt.Sprintf("unknown field %q", field) })
	})
	return doc, warnings, nil
}

// decodeConfig reads doc into c. Names that c does not know are in unknown,
// one error each; names are compared by case, as Kubernetes does.
func decodeConfig(doc any, c *kubeletconfig.KubeletConfiguration) (unknown []error, err error) {
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(raw, c)
}

// wrongFields tells of each field of doc that cannot be decoded its path, its
// value and what is allowed.
func wrongFields(doc map[string]any) (errs []error) {
	var walk func(path string, v any, within func(any) any) (wrong bool)
	walk = func(path string, v any, within func(any) any) bool {
		accepts := func(v any) bool {
			_, err := decodeConfig(within(v), new(kubeletconfig.KubeletConfiguration))
			return err == nil
		}
		if accepts(v) {
			return false
		}
		inner := false
		switch v := v.(type) {
		case map[string]any:
			if !accepts(map[string]any{}) {
				break
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				p := strings.TrimPrefix(path+"."+oneLine(key), ".")
				if walk(p, v[key], func(x any) any { return within(map[string]any{key: x}) }) {
					inner = true
				}
			}
		case []any:
			if !accepts([]any{}) {
				break
			}
			for i := range v {
				if walk(fmt.Sprintf("%s[%d]", path, i), v[i], func(x any) any { return within([]any{x}) }) {
					inner = true
				}
			}
		}
		if !inner {
			errs = append(errs, fmt.Errorf("%s: %s: want %s", path, show(v), allowed(accepts)))
		}
		return true
	}
	walk("", doc, func(v any) any { return v })
	return errs
}

// allowed finds out by trial what a field takes.
func allowed(accepts func(any) bool) string {
	for _, t := range []struct {
		sample any
		want   string
	}{
		{"any text", "a string"},
		{"1s", "a duration such as 30s, 5m or 1h30m"},
		{true, "true or false"},
		{0.5, "a number"},
		{-1 << 40, "a whole number"},
		{-1, "a whole number of 32 bits"},
		{1, "a whole number of 0 or more"},
		{[]any{}, "a list"},
		{map[string]any{}, "a map of fields"},
	} {
		if accepts(t.sample) {
			return t.want
		}
	}
	return "another value"
}

// show writes a value as JSON, shortened if need be.
func show(v any) string {
	if v == nil {
		return "(none)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 100 {
		return strings.ToValidUTF8(string(b[:100]), "") + "..."
	}
	return string(b)
}

// moreDocuments tells whether anything follows the first YAML document.
func moreDocuments(b []byte) bool {
	content, next := false, false
	for line := range bytes.Lines(b) {
		text, isMarker := bytes.CutPrefix(bytes.TrimSpace(line), []byte("---"))
		isMarker = isMarker && bytes.HasPrefix(line, []byte("---")) && (len(text) == 0 || text[0] == ' ' || text[0] == '#')
		switch {
		case isMarker:
			next = content
		case len(text) == 0 || text[0] == '#' || text[0] == '%':
		case next:
			return true
		default:
			content = true
		}
	}
	return false
}

// resolvePaths makes relative paths in the main file relative to its folder.
func resolvePaths(doc map[string]any, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	for _, field := range []string{"staticPodPath", "resolvConf", "podLogsDir"} {
		if p, ok := doc[field].(string); ok && p != "" && !filepath.IsAbs(p) {
			doc[field] = filepath.Join(filepath.Dir(file), p)
		}
	}
	return nil
}

// dropIns lists the *.conf files below dir in lexical order, with a warning
// for each other file.
func dropIns(dir string) (files, warnings []string, err error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, nil, err
	}
	if !fi.IsDir() {
		return nil, nil, fmt.Errorf("--config-dir=%q: want a directory", dir)
	}
	// The slash at the end has a symbolic link followed.
	err = filepath.WalkDir(filepath.Clean(dir)+"/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
		case strings.HasSuffix(path, ".conf"):
			files = append(files, path)
		case d.Type().IsRegular():
			warnings = append(warnings, path+": not read: the name of a drop-in ends in .conf")
		}
		return err
	})
	return files, warnings, err
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
	if c.ImagePullCredentialsVerificationPolicy == "" {
		c.ImagePullCredentialsVerificationPolicy = kubeletconfig.NeverVerifyPreloadedImages
	}
	orDefault(&c.CPUCFSQuota, true)
	orDefault(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	orDefault(&c.SingleProcessOOMKill, false)
	setPlacementDefaults(c)
	setClusterDefaults(c)
	setEvictionDefaults(c)
	setGCDefaults(c)
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	orDefault(&c.CgroupsPerQOS, true)
	if c.CgroupDriver == "" {
		c.CgroupDriver = "cgroupfs"
	}
	if c.EnforceNodeAllocatable == nil && *c.CgroupsPerQOS {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	orDefault(&c.PodPidsLimit, -1)
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
