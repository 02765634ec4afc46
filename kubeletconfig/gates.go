package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// knownGate is a feature gate of the kubelet.
type knownGate struct {
	name  string
	stage string // ALPHA, BETA or DEPRECATED; "" for what is generally available
	is    gateFlags
}

type gateFlags uint8

const (
	isOn      gateFlags = 1 << iota // unless it is set
	isLocked                        // it cannot be set otherwise
	ofKubelet                       // the kubelet's own code asks for it
)

// gatesWithEffect are those that are asked for here: both values are done.
var gatesWithEffect = []string{
	gateCPUAlpha, gateCPUBeta, gatePodLevel, "ContainerCheckpoint", "ExtendWebSocketsToKubelet", "PodLogsQuerySplitStreams",
	"KubeletServiceAccountTokenForCredentialProviders", "MemoryQoS", gateSysctls, gatePodCertificates,
}

// gatesDone are the gates of the kubelet whose default is not what is done here.
var gatesDone = map[string]bool{
	"ContainerStopSignals": true, "EventedPLEG": true, "QOSReserved": true, "RuntimeClassInImageCriApi": true,
	"HugepageAwareEviction": false, "KubeletInUserNamespace": false, "PodCertificateRequest": false, "PodsAPI": false,
}

// allOfAStage are gates that stand for all of a stage.
var allOfAStage = []string{"AllAlpha", "AllBeta"}

func gateNamed(name string) (knownGate, bool) {
	i, ok := slices.BinarySearchFunc(knownGates, name, func(g knownGate, name string) int { return strings.Compare(g.name, name) })
	if !ok {
		return knownGate{}, false
	}
	return knownGates[i], true
}

// Gate is a feature gate with what it comes to.
type Gate struct {
	Name string
	// Stage is ALPHA, BETA or DEPRECATED, and "" for what is generally available.
	Stage string
	// Enabled says what is done: of gates without an effect here that is not
	// always what the configuration says.
	Enabled bool
}

// Gates are all feature gates of the kubelet, in the order of their names.
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

// done is what is done unless a gate with an effect says otherwise.
func (g knownGate) done() bool {
	if v, ok := gatesDone[g.name]; ok {
		return v
	}
	return g.is&isOn != 0
}

// validateGates refuses what the kubelet refuses: gates that nobody knows, and
// others than the locked value.
func validateGates(c *v1beta1.KubeletConfiguration, bad reporter) {
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		g, known := gateNamed(name)
		switch {
		case slices.Contains(allOfAStage, name):
		case !known:
			hint := ""
			if unknown++; unknown <= maxMistakes { // no more are listed
				hint = near(name)
			}
			bad("featureGates."+name, c.FeatureGates[name], "a feature gate of Kubernetes 1.37"+hint)
		case g.is&isLocked != 0 && c.FeatureGates[name] != (g.is&isOn != 0):
			bad("featureGates."+name, c.FeatureGates[name], fmt.Sprintf("%t: it is locked", g.is&isOn != 0))
		}
	}
}

// withoutOwn leaves out mistakes about gates that the caller knows.
func withoutOwn(found []Mistake, used []string) []Mistake {
	return slices.DeleteFunc(found, func(m Mistake) bool {
		return strings.HasPrefix(m.Field, "featureGates.") && slices.Contains(used, m.Field)
	})
}

// near names gates that somebody may have meant.
func near(name string) string {
	type candidate struct {
		name string
		off  int
	}
	const most = 3
	var list []candidate
	short := shortened(name, 100)
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

// distance is how many letters have to be changed, put in or left out to make one
// word of another (Levenshtein).
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

// gateWithoutEffect is a warning of a gate that is set to what is not done; "" for
// any other.
func gateWithoutEffect(name string, value any) string {
	on, _ := value.(bool)
	if slices.Contains(allOfAStage, name) {
		if !on {
			return ""
		}
		return name + ": true has no effect: name the gates"
	}
	g, known := gateNamed(name)
	if !known || g.is&ofKubelet == 0 || slices.Contains(gatesWithEffect, name) || on == g.done() {
		return ""
	}
	return fmt.Sprintf("%s: %t has no effect: this node does as with %t", name, on, g.done())
}
