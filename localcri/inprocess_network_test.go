package localcri

import (
	"errors"
	"strings"
	"testing"
)

func TestChooseNetwork(t *testing.T) {
	const conf = "/etc/cni/net.d/10-x.conflist"
	noConf := errors.New("no valid network configuration in /etc/cni/net.d")
	for _, c := range []struct{ name, asked, last, conf, want, why string }{
		{"cluster", "", "", "", NetworkCNI, "one of a cluster, and waits for a configuration: no valid network configuration in /etc/cni/net.d"},
		{"cluster, and the bridge asked for", NetworkBridge, "", "", NetworkBridge, "asked for"},
		{"bare machine", "", "", "", NetworkBridge, noConf.Error()},
		{"configured machine", "", "", conf, NetworkCNI, conf},
		{"asked for", NetworkBridge, "", conf, NetworkBridge, "asked for"},
		{"asked for another than before", NetworkCNI, NetworkBridge, "", NetworkCNI, "asked for"},
		{"as before", "", NetworkBridge, "", NetworkBridge, noConf.Error()},
		{"configured since", "", NetworkBridge, conf, NetworkBridge, "has it already; cni would be chosen now"},
		{"configuration removed", "", NetworkCNI, "", NetworkCNI, "has it already; bridge would be chosen now"},
		{"none before", "", NetworkNone, conf, NetworkNone, "has it already"},
		{"of a later version", "", "magic", "", NetworkBridge, noConf.Error()},
	} {
		got, err := chooseNetwork(inProcessMachine{asked: c.asked, last: c.last, conf: c.conf, noConf: noConf, cluster: strings.HasPrefix(c.name, "cluster")})
		if err != nil || got.kind != c.want || !strings.Contains(got.why, c.why) {
			t.Errorf("%s: %s, %v; want %s: %s", c.name, got, err, c.want, c.why)
		}
	}
	if _, err := chooseNetwork(inProcessMachine{asked: "host"}); err == nil || err.Error() != `network "host": want one of cni, bridge, none` {
		t.Error(err)
	}
}
