package localcri

import (
	"strings"
	"testing"
)

func TestChooseNetwork(t *testing.T) {
	const dir, conf = "/etc/cni/net.d", "/etc/cni/net.d/10-x.conflist"
	for _, c := range []struct{ name, asked, last, conf, want, why string }{
		{"cluster", "", "", "", NetworkCNI, "one of a cluster, and waits for a configuration in /etc/cni/net.d"},
		{"cluster, and the bridge asked for", NetworkBridge, "", "", NetworkBridge, "asked for"},
		{"bare machine", "", "", "", NetworkBridge, "no CNI configuration is in /etc/cni/net.d"},
		{"configured machine", "", "", conf, NetworkCNI, conf},
		{"asked for", NetworkBridge, "", conf, NetworkBridge, "asked for"},
		{"asked for another than before", NetworkCNI, NetworkBridge, "", NetworkCNI, "asked for"},
		{"as before", "", NetworkBridge, "", NetworkBridge, "no CNI configuration"},
		{"configured since", "", NetworkBridge, conf, NetworkBridge, "has it already; cni would be chosen now"},
		{"configuration removed", "", NetworkCNI, "", NetworkCNI, "has it already; bridge would be chosen now"},
		{"none before", "", NetworkNone, conf, NetworkNone, "has it already"},
		{"of a later version", "", "magic", "", NetworkBridge, "no CNI"},
	} {
		got, err := chooseNetwork(inProcessMachine{asked: c.asked, last: c.last, dir: dir, conf: c.conf, cluster: strings.HasPrefix(c.name, "cluster")})
		if err != nil || got.kind != c.want || !strings.Contains(got.why, c.why) {
			t.Errorf("%s: %s, %v; want %s: %s", c.name, got, err, c.want, c.why)
		}
	}
	if _, err := chooseNetwork(inProcessMachine{asked: "host", dir: dir}); err == nil || err.Error() != `network "host": want one of cni, bridge, none` {
		t.Error(err)
	}
}

func TestConfFile(t *testing.T) {
	for want, names := range map[string][]string{
		"":              {"README", ".conflist.tmp", "10-x.conflist~"},
		"10-x.conflist": {"20-y.conf", "10-x.conflist", "99.json"},
		"99.json":       {"99.json"},
	} {
		if got := confFile(names); got != want {
			t.Errorf("%q of %q, want %q", got, names, want)
		}
	}
}
