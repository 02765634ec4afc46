package inprocess

import (
	"strings"
	"testing"
)

func TestChooseNetwork(t *testing.T) {
	const dir, conf = "/etc/cni/net.d", "/etc/cni/net.d/10-x.conflist"
	for _, c := range []struct{ name, asked, last, conf, want, why string }{
		{"cluster", "", "", "", CNI, "one of a cluster, and waits for a configuration in /etc/cni/net.d"},
		{"cluster, and the bridge asked for", Bridge, "", "", Bridge, "asked for"},
		{"bare machine", "", "", "", Bridge, "no CNI configuration is in /etc/cni/net.d"},
		{"configured machine", "", "", conf, CNI, conf},
		{"asked for", Bridge, "", conf, Bridge, "asked for"},
		{"asked for another than before", CNI, Bridge, "", CNI, "asked for"},
		{"as before", "", Bridge, "", Bridge, "no CNI configuration"},
		{"configured since", "", Bridge, conf, Bridge, "has it already; cni would be chosen now"},
		{"configuration removed", "", CNI, "", CNI, "has it already; bridge would be chosen now"},
		{"none before", "", None, conf, None, "has it already"},
		{"of a later version", "", "magic", "", Bridge, "no CNI"},
	} {
		got, err := chooseNetwork(machine{asked: c.asked, last: c.last, dir: dir, conf: c.conf, cluster: strings.HasPrefix(c.name, "cluster")})
		if err != nil || got.kind != c.want || !strings.Contains(got.why, c.why) {
			t.Errorf("%s: %s, %v; want %s: %s", c.name, got, err, c.want, c.why)
		}
	}
	if _, err := chooseNetwork(machine{asked: "host", dir: dir}); err == nil || err.Error() != `network "host": want one of cni, bridge, none` {
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
