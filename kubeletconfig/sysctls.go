package kubeletconfig

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podmeta"
)

// gateSysctls is the feature gate for defaultPodSysctls (KEP-5996).
const gateSysctls = "DefaultPodSysctls"

// aSysctl matches a name of a sysctl that the API accepts in a pod. In addition, the name
// may have at most 253 bytes.
var aSysctl = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func validateSysctls(c *v1beta1.KubeletConfiguration, bad reporter) {
	if len(c.DefaultPodSysctls) == 0 {
		return
	}
	if !c.FeatureGates[gateSysctls] {
		bad("defaultPodSysctls", len(c.DefaultPodSysctls), "none, or featureGates.DefaultPodSysctls: true")
		return
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.DefaultPodSysctls)) {
		dotted := podmeta.SysctlName(name)
		field := "defaultPodSysctls[" + callerror.Cut(name, 100) + "]"
		switch value := c.DefaultPodSysctls[name]; {
		case len(name) > 253 || !aSysctl.MatchString(name):
			bad(field, value, "the name of a sysctl, such as net.core.somaxconn")
		case podmeta.SysctlNamespace(dotted) == "":
			bad(field, value, "a sysctl of a namespace: kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*, kernel.domainname or user.*")
		case seen[dotted]:
			bad(field, value, "each sysctl once")
		case strings.ContainsAny(value, "\x00\n"):
			bad(field, value, "a value of one line")
		}
		seen[dotted] = true
	}
}
