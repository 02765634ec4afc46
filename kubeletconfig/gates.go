package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/callerror"
)

// knownGate is a feature gate of the kubelet.
type knownGate struct {
	name  string
	stage string // ALPHA, BETA or DEPRECATED; "" if generally available
	is    gateFlags
}

type gateFlags uint8

const (
	isOn      gateFlags = 1 << iota // the default is on
	isLocked                        // the gate cannot be changed
	ofKubelet                       // the kubelet's own code uses the gate
)

// gatesWithEffect are the gates that nodewright implements in both states, on and off.
var gatesWithEffect = []string{
	gateCPUAlpha, gateCPUBeta, gatePodLevel, "ContainerCheckpoint", "ExtendWebSocketsToKubelet", "PodLogsQuerySplitStreams",
	"KubeletServiceAccountTokenForCredentialProviders", "MemoryQoS", gateSysctls, gatePodCertificates,
	gateProjects,
}

// gatesDone has the kubelet's gates for which nodewright behaves differently from the gate's
// default. The value is true if nodewright behaves as if the gate is on.
var gatesDone = map[string]bool{
	"ContainerStopSignals": true, "EventedPLEG": true, "QOSReserved": true, "RuntimeClassInImageCriApi": true,
	"HugepageAwareEviction": false, "KubeletInUserNamespace": false, "PodCertificateRequest": false, "PodsAPI": false,
}

// gateProjects is the feature gate of ProjectQuotas.
const gateProjects = "LocalStorageCapacityIsolationFSQuotaMonitoring"

// ProjectQuotas reports whether project quotas measure the disk usage of pods with a user namespace.
func (c *Config) ProjectQuotas() bool { return c.FeatureGates[gateProjects] }

// allOfAStage are the gates that turn on all gates of a stage.
var allOfAStage = []string{"AllAlpha", "AllBeta"}

func gateNamed(name string) (knownGate, bool) {
	i, ok := slices.BinarySearchFunc(knownGates, name, func(g knownGate, name string) int { return strings.Compare(g.name, name) })
	if !ok {
		return knownGate{}, false
	}
	return knownGates[i], true
}

// Gate is a feature gate with its state on this node.
type Gate struct {
	Name string
	// Stage is ALPHA, BETA or DEPRECATED. It is "" if the gate is generally available.
	Stage string
	// Enabled is true if the node behaves as if the gate is on. For a gate without effect here it
	// may differ from the configured value.
	Enabled bool
}

// Gates returns all feature gates of the kubelet, sorted by name.
func (c *Config) Gates() []Gate {
	out := make([]Gate, 0, len(knownGates))
	for _, g := range knownGates {
		on := g.done()
		if v, set := c.FeatureGates[g.name]; set && (g.is&ofKubelet == 0 || slices.Contains(gatesWithEffect, g.name)) {
			on = v
		}
		out = append(out, Gate{g.name, g.stage, on})
	}
	return out
}

// done reports whether nodewright behaves as if the gate is on, if the gate is not
// configured.
func (g knownGate) done() bool {
	if v, ok := gatesDone[g.name]; ok {
		return v
	}
	return g.is&isOn != 0
}

// validateGates reports gates that the kubelet rejects: unknown gates, and locked gates with a
// changed value.
func validateGates(c *v1beta1.KubeletConfiguration, bad reporter) {
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		g, known := gateNamed(name)
		switch {
		case slices.Contains(allOfAStage, name):
		case !known:
			hint := ""
			if unknown++; unknown <= maxMistakes { // joined lists no further mistakes
				hint = near(name)
			}
			bad("featureGates."+name, c.FeatureGates[name], "a feature gate of Kubernetes 1.37"+hint)
		case g.is&isLocked != 0 && c.FeatureGates[name] != (g.is&isOn != 0):
			bad("featureGates."+name, c.FeatureGates[name], fmt.Sprintf("%t: the gate is locked", g.is&isOn != 0))
		}
	}
}

// withoutOwn removes mistakes about gates that the caller implements.
func withoutOwn(found []Mistake, used []string) []Mistake {
	return slices.DeleteFunc(found, func(m Mistake) bool {
		return strings.HasPrefix(m.Field, "featureGates.") && slices.Contains(used, m.Field)
	})
}

// near returns ", such as " with up to three known gates of a similar name, or "".
func near(name string) string {
	type candidate struct {
		name string
		off  int
	}
	const most = 3
	var list []candidate
	short := callerror.Cut(name, 100)
	for _, g := range knownGates {
		d := distance(strings.ToLower(short), strings.ToLower(g.name))
		if d <= max(2, len(g.name)/5) || len(short) >= 6 && strings.Contains(strings.ToLower(g.name), strings.ToLower(short)) {
			list = append(list, candidate{g.name, d})
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.SortStableFunc(list, func(x, y candidate) int { return x.off - y.off })
	var names []string
	for _, c := range list[:min(most, len(list))] {
		names = append(names, c.name)
	}
	return ", such as " + strings.Join(names, ", ")
}

// distance returns the Levenshtein distance between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}

// gateWithoutEffect returns a warning if the configured value of a gate has no effect and
// differs from the behaviour of nodewright. Otherwise it returns "".
func gateWithoutEffect(name string, value any) string {
	on, _ := value.(bool)
	if slices.Contains(allOfAStage, name) {
		if !on {
			return ""
		}
		return name + ": true has no effect: enable single gates"
	}
	g, known := gateNamed(name)
	if !known || g.is&ofKubelet == 0 || slices.Contains(gatesWithEffect, name) || on == g.done() {
		return ""
	}
	return fmt.Sprintf("%s: %t has no effect: this node behaves as with %t", name, on, g.done())
}
