package kubeletconfig

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/quantity"
)

// fieldFlag is a deprecated flag of the kubelet that sets a field of the configuration file.
// The flags are applied after all files, like one more drop-in, except that a map or a list
// is replaced and not merged.
type fieldFlag struct {
	name string
	path string // path of the field, separated by dots
	kind flagKind
}

// flagKind says how the value of a flag is parsed.
type flagKind struct {
	hint  string                                      // name of the value in the usage text
	parse func(s string, before any) (v any, e error) // before is the value of an earlier occurrence of the flag, or nil
}

var (
	aWord      = flagKind{"text", func(s string, _ any) (any, error) { return s, nil }}
	aSize      = flagKind{"size", parseSize}
	aFile      = flagKind{"file", parsePath}
	aTruth     = flagKind{"bool", func(s string, _ any) (any, error) { return strconv.ParseBool(s) }}
	aCount     = flagKind{"number", func(s string, _ any) (any, error) { return parseWhole(s, 32) }}
	aLarge     = flagKind{"number", func(s string, _ any) (any, error) { return parseWhole(s, 64) }}
	aPeriod    = flagKind{"duration", parsePeriod}
	aList      = flagKind{"list", parseList}
	theValues  = flagKind{"name=value,...", parseValues}
	theGates   = flagKind{"gate=bool,...", parseGates}
	theHeads   = flagKind{"name:value,...", parseHeaders}
	theTaints  = flagKind{"key=value:effect,...", parseTaints}
	theModules = flagKind{"pattern=level,...", parseModules}
	theMemory  = flagKind{"node:type=amount,...;...", parseMemory}
)

// fieldFlags are all deprecated flags that set a field, with the kubelet's names.
var fieldFlags = []fieldFlag{
	{"address", "address", aWord},
	{"allowed-unsafe-sysctls", "allowedUnsafeSysctls", aList},
	{"anonymous-auth", "authentication.anonymous.enabled", aTruth},
	{"authentication-token-webhook", "authentication.webhook.enabled", aTruth},
	{"authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL", aPeriod},
	{"authorization-mode", "authorization.mode", aWord},
	{"authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL", aPeriod},
	{"authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL", aPeriod},
	{"cgroup-driver", "cgroupDriver", aWord},
	{"cgroup-root", "cgroupRoot", aWord},
	{"cgroups-per-qos", "cgroupsPerQOS", aTruth},
	{"client-ca-file", "authentication.x509.clientCAFile", aFile},
	{"cluster-dns", "clusterDNS", aList},
	{"cluster-domain", "clusterDomain", aWord},
	{"container-log-max-files", "containerLogMaxFiles", aCount},
	{"container-log-max-size", "containerLogMaxSize", aWord},
	{"contention-profiling", "enableContentionProfiling", aTruth},
	{"cpu-cfs-quota", "cpuCFSQuota", aTruth},
	{"cpu-cfs-quota-period", "cpuCFSQuotaPeriod", aPeriod},
	{"cpu-manager-policy", "cpuManagerPolicy", aWord},
	{"cpu-manager-policy-options", "cpuManagerPolicyOptions", theValues},
	{"cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", aPeriod},
	{"enable-controller-attach-detach", "enableControllerAttachDetach", aTruth},
	{"enable-debugging-handlers", "enableDebuggingHandlers", aTruth},
	{"enable-server", "enableServer", aTruth},
	{"enforce-node-allocatable", "enforceNodeAllocatable", aList},
	{"event-burst", "eventBurst", aCount},
	{"event-qps", "eventRecordQPS", aCount},
	{"fail-cgroupv1", "failCgroupV1", aTruth},
	{"fail-swap-on", "failSwapOn", aTruth},
	{"feature-gates", "featureGates", theGates},
	{"file-check-frequency", "fileCheckFrequency", aPeriod},
	{"hairpin-mode", "hairpinMode", aWord},
	{"healthz-bind-address", "healthzBindAddress", aWord},
	{"healthz-port", "healthzPort", aCount},
	{"http-check-frequency", "httpCheckFrequency", aPeriod},
	{"image-gc-high-threshold", "imageGCHighThresholdPercent", aCount},
	{"image-gc-low-threshold", "imageGCLowThresholdPercent", aCount},
	{"kernel-memcg-notification", "kernelMemcgNotification", aTruth},
	{"kube-api-burst", "kubeAPIBurst", aCount},
	{"kube-api-content-type", "contentType", aWord},
	{"kube-api-qps", "kubeAPIQPS", aCount},
	{"kube-reserved", "kubeReserved", theValues},
	{"kube-reserved-cgroup", "kubeReservedCgroup", aWord},
	{"kubelet-cgroups", "kubeletCgroups", aWord},
	{"log-flush-frequency", "logging.flushFrequency", aPeriod},
	{"log-json-info-buffer-size", "logging.options.json.infoBufferSize", aSize},
	{"log-json-split-stream", "logging.options.json.splitStream", aTruth},
	{"log-text-info-buffer-size", "logging.options.text.infoBufferSize", aSize},
	{"log-text-split-stream", "logging.options.text.splitStream", aTruth},
	{"logging-format", "logging.format", aWord},
	{"make-iptables-util-chains", "makeIPTablesUtilChains", aTruth},
	{"manifest-url-header", "staticPodURLHeader", theHeads},
	{"max-open-files", "maxOpenFiles", aLarge},
	{"max-pods", "maxPods", aCount},
	{"memory-manager-policy", "memoryManagerPolicy", aWord},
	{"minimum-image-ttl-duration", "imageMinimumGCAge", aPeriod},
	{"node-status-max-images", "nodeStatusMaxImages", aCount},
	{"node-status-update-frequency", "nodeStatusUpdateFrequency", aPeriod},
	{"oom-score-adj", "oomScoreAdj", aCount},
	{"pod-cidr", "podCIDR", aWord},
	{"pod-max-pids", "podPidsLimit", aLarge},
	{"pods-per-core", "podsPerCore", aCount},
	{"port", "port", aCount},
	{"protect-kernel-defaults", "protectKernelDefaults", aTruth},
	{"provider-id", "providerID", aWord},
	{"qos-reserved", "qosReserved", theValues},
	{"read-only-port", "readOnlyPort", aCount},
	{"register-with-taints", "registerWithTaints", theTaints},
	{"registry-burst", "registryBurst", aCount},
	{"registry-qps", "registryPullQPS", aCount},
	{"reserved-cpus", "reservedSystemCPUs", aWord},
	{"reserved-memory", "reservedMemory", theMemory},
	{"resolv-conf", "resolvConf", aWord},
	{"rotate-certificates", "rotateCertificates", aTruth},
	{"rotate-server-certificates", "serverTLSBootstrap", aTruth},
	{"runtime-request-timeout", "runtimeRequestTimeout", aPeriod},
	{"seccomp-default", "seccompDefault", aTruth},
	{"serialize-image-pulls", "serializeImagePulls", aTruth},
	{"streaming-connection-idle-timeout", "streamingConnectionIdleTimeout", aPeriod},
	{"sync-frequency", "syncFrequency", aPeriod},
	{"system-cgroups", "systemCgroups", aWord},
	{"system-reserved", "systemReserved", theValues},
	{"system-reserved-cgroup", "systemReservedCgroup", aWord},
	{"tls-cert-file", "tlsCertFile", aFile},
	{"tls-cipher-suites", "tlsCipherSuites", aList},
	{"tls-min-version", "tlsMinVersion", aWord},
	{"tls-private-key-file", "tlsPrivateKeyFile", aFile},
	{"topology-manager-policy", "topologyManagerPolicy", aWord},
	{"topology-manager-policy-options", "topologyManagerPolicyOptions", theValues},
	{"topology-manager-scope", "topologyManagerScope", aWord},
	{"vmodule", "logging.vmodule", theModules},
	{"volume-plugin-dir", "volumePluginDir", aFile},
	{"volume-stats-agg-period", "volumeStatsAggPeriod", aPeriod},
}

// deadFlags are flags of cAdvisor and klog, and deprecated flags of the kubelet, that are accepted
// without effect.
var deadFlags = []string{
	"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
	"event-storage-age-limit", "event-storage-event-limit", "experimental-allocatable-ignore-eviction",
	"experimental-mounter-path", "global-housekeeping-interval", "housekeeping-interval", "log-cadvisor-usage",
	"machine-id-file",
	"max-housekeeping-interval", "storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password",
	"storage-driver-secure", "storage-driver-table", "storage-driver-user",
}

// deadSwitches are the deadFlags that are boolean.
var deadSwitches = []string{
	"enable-load-reader", "experimental-allocatable-ignore-eviction", "log-cadvisor-usage",
	"storage-driver-secure",
}

// bindFields defines fieldFlags and deadFlags in fs.
func (f *Flags) bindFields(fs *flag.FlagSet) {
	f.fields = map[string]any{}
	for _, l := range fieldFlags {
		set := func(s string) error {
			v, err := l.kind.parse(s, f.fields[l.name])
			if err == nil {
				f.fields[l.name] = v
			}
			return err
		}
		usage := "field " + l.path + " of the configuration, a `" + l.kind.hint + "`"
		if l.kind.hint == aTruth.hint {
			fs.BoolFunc(l.name, usage, set)
		} else {
			fs.Func(l.name, usage, set)
		}
	}
	for _, name := range deadFlags {
		usage := "--" + name + " of the kubelet has no effect"
		if slices.Contains(deadSwitches, name) {
			fs.BoolFunc(name, usage, func(s string) error { _, err := strconv.ParseBool(s); return err })
		} else {
			fs.Func(name, usage, func(string) error { return nil })
		}
	}
}

// layFields sets the fields of c to the values of the fieldFlags that were given.
func (f *Flags) layFields(c *v1beta1.KubeletConfiguration) error {
	if len(f.fields) == 0 {
		return nil
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	doc := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	for _, l := range fieldFlags {
		v, ok := f.fields[l.name]
		if !ok {
			continue
		}
		at, names := doc, strings.Split(l.path, ".")
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		last := names[len(names)-1]
		if gates, ok := at[last].(map[string]any); ok && l.kind.hint == theGates.hint {
			maps.Copy(gates, v.(map[string]any)) //nolint:forcetypeassert // parseGates returns no other type
			continue
		}
		at[last] = v
	}
	out := v1beta1.KubeletConfiguration{}
	if _, err := decode(doc, &out); err != nil {
		return fmt.Errorf("invalid flags: %w", err)
	}
	*c = out
	return nil
}

// fieldsWithoutEffect returns warnings about flags of unsupported fields, and about deadFlags.
func (f *Flags) fieldsWithoutEffect(used []string) (warnings []string) {
	effective := func(field string) bool { return slices.Contains(supported, field) || slices.Contains(used, field) }
	for _, l := range fieldFlags {
		v, ok := f.fields[l.name]
		if !ok {
			continue
		}
		if gates, is := v.(map[string]any); is && l.kind.hint == theGates.hint {
			for _, gate := range slices.Sorted(maps.Keys(gates)) {
				if w := gateWithoutEffect(gate, gates[gate]); w != "" && !slices.Contains(used, "featureGates."+gate) {
					warnings = append(warnings, "--feature-gates: "+w)
				}
			}
			continue
		}
		top, within, _ := strings.Cut(l.path, ".")
		within, _, _ = strings.Cut(within, ".")
		if !effective(top) || top == "logging" && !effective("logging."+within) {
			warnings = append(warnings, "--"+l.name+" is not supported and has no effect"+because(top))
		}
	}
	given := f.given()
	for _, name := range deadFlags {
		if given[name] {
			warnings = append(warnings, "--"+name+" has no effect")
		}
	}
	return warnings
}

func parsePath(s string, _ any) (any, error) {
	if s == "" {
		return "", nil
	}
	return filepath.Abs(s)
}

func parseSize(s string, _ any) (any, error) {
	if _, err := quantity.Parse(s); err != nil {
		return nil, fmt.Errorf("%q: want a quantity, such as 64Ki", s)
	}
	return s, nil
}

func parseWhole(s string, bits int) (any, error) {
	n, err := strconv.ParseInt(s, 0, bits)
	if err != nil {
		return nil, fmt.Errorf("%q: want a whole number of %d bits", s, bits)
	}
	return n, nil
}

func parsePeriod(s string, _ any) (any, error) {
	if _, err := time.ParseDuration(s); err != nil {
		return nil, err
	}
	return s, nil
}

// parts splits a list at a separator. It leaves out empty elements and trims the others.
func parts(s, separator string) (out []string) {
	for p := range strings.SplitSeq(s, separator) {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func parseList(s string, before any) (any, error) {
	out, _ := before.([]string)
	out = append(slices.Clip(out), parts(s, ",")...)
	if out == nil {
		out = []string{}
	}
	return out, nil
}

// named parses the pairs in s, adds them to a copy of the map old, and returns the copy. separator
// separates the name and the value of a pair. value parses a value.
func named[V any](s, separator string, old any, value func(string) (V, error)) (any, error) {
	out := map[string]any{}
	if m, ok := old.(map[string]any); ok {
		out = maps.Clone(m)
	}
	for _, p := range parts(s, ",") {
		name, text, ok := strings.Cut(p, separator)
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: want name%svalue, separated by commas", p, separator)
		}
		v, err := value(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

func parseValues(s string, before any) (any, error) {
	return named(s, "=", before, func(v string) (string, error) { return v, nil })
}

func parseGates(s string, before any) (any, error) {
	return named(s, "=", before, func(v string) (bool, error) {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return false, fmt.Errorf("%q: want true or false", v)
		}
		return b, nil
	})
}

// parseHeaders parses HTTP headers and adds them to a copy of the map old. A header may have
// several values.
func parseHeaders(s string, old any) (any, error) {
	out := map[string][]string{}
	if m, ok := old.(map[string][]string); ok {
		out = maps.Clone(m)
	}
	for _, p := range parts(s, ",") {
		name, value, ok := strings.Cut(p, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errors.New("want name:value, separated by commas") // the value may be a secret
		}
		out[name] = append(slices.Clip(out[name]), strings.TrimSpace(value))
	}
	return out, nil
}

// parseTaints parses taints in kubectl's format.
func parseTaints(s string, before any) (any, error) {
	out, _ := before.([]v1.Taint)
	for _, p := range parts(s, ",") {
		rest, effect, ok := strings.Cut(p, ":")
		key, value, _ := strings.Cut(rest, "=")
		if !ok || key == "" || effect == "" {
			return nil, fmt.Errorf("%q: want key=value:effect or key:effect, separated by commas", p)
		}
		out = append(slices.Clip(out), v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
	}
	return out, nil
}

// parseModules parses the verbosity of each source file (--vmodule).
func parseModules(s string, before any) (any, error) {
	type module struct {
		Pattern   string `json:"filePattern"`
		Verbosity int64  `json:"verbosity"`
	}
	out, _ := before.([]module)
	for _, p := range parts(s, ",") {
		pattern, level, ok := strings.Cut(p, "=")
		v, err := strconv.ParseInt(level, 10, 32)
		if !ok || pattern == "" || err != nil || v < 0 {
			return nil, fmt.Errorf("%q: want pattern=level, separated by commas", p)
		}
		out = append(slices.Clip(out), module{pattern, v})
	}
	return out, nil
}

// parseMemory parses the reserved memory of each NUMA node, such as
// 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=1Gi.
func parseMemory(s string, before any) (any, error) {
	type reservation struct {
		Node   int64             `json:"numaNode"`
		Limits map[string]string `json:"limits"`
	}
	out, _ := before.([]reservation)
	for _, p := range parts(s, ";") {
		node, limits, ok := strings.Cut(p, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(node), 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%q: want node:type=amount,..., separated by semicolons", p)
		}
		r := reservation{Node: n, Limits: map[string]string{}}
		for _, l := range parts(limits, ",") {
			name, amount, ok := strings.Cut(l, "=")
			if !ok || name == "" || r.Limits[name] != "" {
				return nil, fmt.Errorf("%q: want each type once, as type=amount", l)
			}
			r.Limits[name] = amount
		}
		out = append(slices.Clip(out), r)
	}
	return out, nil
}
