package kubeletconfig

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/gc"
)

// Every error names the flag, its value and what is allowed.
func TestFlagsWrong(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--exit-on-lock-contention"}, []string{"--exit-on-lock-contention=true", "requires --lock-file"}},
		{[]string{"--bootstrap-kubeconfig", "/b"}, []string{`--bootstrap-kubeconfig="/b"`, "requires --kubeconfig"}},
		{[]string{"--root-dir="}, []string{`--root-dir=""`, "want a directory"}},
		{[]string{"--hostname-override", "  "}, []string{`--hostname-override="  "`, "RFC 1123"}},
		{[]string{"--hostname-override", "Under_Score"}, []string{`--hostname-override="Under_Score"`, "lower case"}},
		{[]string{"--node-ip", "10.0.0"}, []string{`--node-ip="10.0.0"`, "not an IP address"}},
		{[]string{"--node-ip", "10.0.0.1,"}, []string{`--node-ip="10.0.0.1,"`, `"" is not an IP address`}},
		{[]string{"--node-ip", "10.0.0.1,10.0.0.2"}, []string{"--node-ip=", "one of IPv4 and one of IPv6"}},
		{[]string{"--node-ip", "10.0.0.1,fd00::1,fd00::2"}, []string{"--node-ip=", "one of IPv4 and one of IPv6"}},
		{[]string{"--node-ip", "0.0.0.0,::"}, []string{"--node-ip=", `"0.0.0.0" is not an address of a single machine`}},
		{[]string{"--node-ip", "224.0.0.1"}, []string{"--node-ip=", "is not an address of a single machine"}},
		{[]string{"--manifest-url", "ftp://h/x"}, []string{`--manifest-url="ftp://h/x"`, "http or https"}},
		{[]string{"--manifest-url", "h/x"}, []string{`--manifest-url="h/x"`, "http or https"}},
		{[]string{"--container-runtime-endpoint", "tcp://h:1"}, []string{`--container-runtime-endpoint="tcp://h:1"`, "unix:///path"}},
		{[]string{"--image-service-endpoint", "x.sock"}, []string{`--image-service-endpoint="x.sock"`, "unix:///path"}},
		// All mistakes at once.
		{[]string{"--bootstrap-kubeconfig", "/k", "--node-ip", "x", "--node-labels", "a=%"}, []string{"--bootstrap-kubeconfig", "--node-ip", "--node-labels"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			f := parse(t, tc.args...)
			err := f.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
			if _, _, loadErr := Load(Options{Flags: f}); loadErr == nil || loadErr.Error() != err.Error() {
				t.Errorf("Load: %v, want %v", loadErr, err)
			}
		})
	}
}

func TestFlagsNodeLabels(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want map[string]string // nil means an error
		err  string
	}{
		{"none", []string{""}, map[string]string{}, ""},
		{"several", []string{"a=1,b=2"}, map[string]string{"a": "1", "b": "2"}, ""},
		{"given twice", []string{"a=1", "b=2"}, map[string]string{"a": "1", "b": "2"}, ""},
		{"later wins", []string{"a=1,a=2"}, map[string]string{"a": "2"}, ""},
		{"empty value", []string{"a="}, map[string]string{"a": ""}, ""},
		{"space and stray commas", []string{" a = 1 ,, b=2,"}, map[string]string{"a": "1", "b": "2"}, ""},
		{"own domain", []string{"example.com/role=edge"}, map[string]string{"example.com/role": "edge"}, ""},
		{"node.kubernetes.io", []string{"node.kubernetes.io/x=1"}, map[string]string{"node.kubernetes.io/x": "1"}, ""},
		{"below kubelet.kubernetes.io", []string{"a.kubelet.kubernetes.io/x=1"}, map[string]string{"a.kubelet.kubernetes.io/x": "1"}, ""},
		{"zone", []string{"topology.kubernetes.io/zone=z"}, map[string]string{"topology.kubernetes.io/zone": "z"}, ""},
		{"beta arch", []string{"beta.kubernetes.io/arch=arm"}, map[string]string{"beta.kubernetes.io/arch": "arm"}, ""},
		{"looks like the domain", []string{"notkubernetes.io/x=1"}, map[string]string{"notkubernetes.io/x": "1"}, ""},

		{"no value", []string{"a"}, nil, `--node-labels: "a": want key=value`},
		{"bad value", []string{"a=b c"}, nil, `--node-labels: a="b c": a valid label must`},
		{"bad key", []string{"-a=b"}, nil, `--node-labels: key "-a": name part must`},
		{"empty key", []string{"=b"}, nil, `--node-labels: key "": name part must be non-empty`},
		{"role", []string{"node-role.kubernetes.io/master=,x=1,a.k8s.io/b=1"}, nil,
			"--node-labels: a.k8s.io/b, node-role.kubernetes.io/master: in the domains kubernetes.io and k8s.io only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var args []string
			for _, a := range tc.args {
				args = append(args, "--node-labels", a)
			}
			c, _, err := Load(Options{Flags: parse(t, args...)})
			if tc.want == nil {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(c.NodeLabels, tc.want) {
				t.Errorf("labels %v, want %v", c.NodeLabels, tc.want)
			}
		})
	}
}

// What only flags say is in the configuration.
func TestFlagsEach(t *testing.T) {
	for _, tc := range []struct {
		args string
		got  func(c *Config) any
		want any
	}{
		{"", func(c *Config) any { return c.RootDir }, "/var/lib/kubelet"},
		{"", func(c *Config) any { return c.CertDir }, "/var/lib/kubelet/pki"},
		{"", func(c *Config) any { return *c.RegisterNode }, true},
		{"", func(c *Config) any { return c.DeadContainers }, gc.ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1}},
		{"--kubeconfig=", func(c *Config) any { return c.Kubeconfig }, ""},
		{"--lock-file /run/../l --exit-on-lock-contention", func(c *Config) any { return fmt.Sprint(c.LockFile, " ", c.ExitOnLockContention) }, "/l true"},
		{"-kubeconfig /k --bootstrap-kubeconfig /b", func(c *Config) any { return c.Kubeconfig + c.BootstrapKubeconfig }, "/k/b"},
		{"--root-dir /data", func(c *Config) any { return c.RootDir + " " + c.CertDir }, "/data /data/pki"},
		{"--root-dir /a --root-dir /b", func(c *Config) any { return c.RootDir }, "/b"},
		{"--cert-dir /pki", func(c *Config) any { return c.CertDir }, "/pki"},
		{"--hostname-override Edge-1.Example", func(c *Config) any { return c.Hostname }, "edge-1.example"},
		{"--hostname-override=", func(c *Config) any { return c.Hostname }, ""}, // as the kubelet: not given
		{"--node-ip 10.0.0.7", func(c *Config) any { return strings.Join(c.NodeIPs, " ") }, "10.0.0.7"},
		{"--node-ip fd00::7,10.0.0.7", func(c *Config) any { return strings.Join(c.NodeIPs, " ") }, "fd00::7 10.0.0.7"},
		{"--node-ip ::", func(c *Config) any { return strings.Join(c.NodeIPs, " ") }, "::"},
		{"--register-node", func(c *Config) any { return *c.RegisterNode }, true},
		{"--register-node=false", func(c *Config) any { return *c.RegisterNode }, false},
		{"--pod-manifest-path /m", func(c *Config) any { return c.StaticPodPath }, "/m"},
		{"--manifest-url https://h:1/x", func(c *Config) any { return c.StaticPodURL }, "https://h:1/x"},
		{"--container-runtime-endpoint unix:///r.sock", func(c *Config) any { return c.ContainerRuntimeEndpoint }, "unix:///r.sock"},
		{"--image-service-endpoint /i.sock", func(c *Config) any { return c.ImageServiceEndpoint }, "/i.sock"},
		{"--runtime-cgroups /system.slice/containerd.service", func(c *Config) any { return c.RuntimeCgroup }, "/system.slice/containerd.service"},
		{"--image-credential-provider-config /c --image-credential-provider-bin-dir /d", func(c *Config) any { return c.CredentialProviderConfig + c.CredentialProviderDir }, "/c/d"},
		{"--v 4", func(c *Config) any { return c.Verbosity() }, 4},
		{"--minimum-container-ttl-duration 1m --maximum-dead-containers 20 --maximum-dead-containers-per-container 2",
			func(c *Config) any { return c.DeadContainers }, gc.ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 2, MaxContainers: 20}},
		{"--eviction-max-pod-grace-period 0x10", func(c *Config) any { return c.EvictionMaxPodGracePeriod }, int32(16)},
		{"--merge-default-eviction-settings --eviction-hard memory.available<1Gi --eviction-hard pid.available<5%", func(c *Config) any {
			return (&pairsValue{"<", &c.EvictionHard}).String()
		}, "imagefs.available<15%,imagefs.inodesFree<5%,memory.available<1Gi,nodefs.available<10%,nodefs.inodesFree<5%,pid.available<5%"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			c, _, err := Load(Options{Flags: parse(t, strings.Fields(tc.args)...)})
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(c); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A field of the file stands unless its flag is given; verbosity is the larger.
func TestFlagsNotGiven(t *testing.T) {
	const conf = configHead + "registerNode: false\nlogging: {verbosity: 3}\nlocalStorageCapacityIsolation: false\nevictionMaxPodGracePeriod: 7\n"
	c, warnings, err := loadWith(t, conf, "--v=2")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if *c.RegisterNode || *c.LocalStorageCapacityIsolation || c.EvictionMaxPodGracePeriod != 7 || c.Verbosity() != 3 {
		t.Errorf("registerNode %t, localStorageCapacityIsolation %t, evictionMaxPodGracePeriod %d, verbosity %d",
			*c.RegisterNode, *c.LocalStorageCapacityIsolation, c.EvictionMaxPodGracePeriod, c.Verbosity())
	}
}

// Mistakes that the flags bring in are theirs, and not the file's.
func TestFlagsWrongOverFile(t *testing.T) {
	const conf = configHead + "evictionHard: {memory.available: 1Gi}\n"
	_, _, err := loadWith(t, conf, "--eviction-hard=memory.available<much,pid.available<1e-2000000000")
	want := "invalid flags: evictionHard.memory.available: \"much\": want a quantity"
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "\ninvalid flags: evictionHard.pid.available: \"1e-2000000000\": want "+wantQuantity) {
		t.Errorf("error %v, want %q first", err, want)
	}
}

func TestFlagsWithoutEffect(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "--cert-dir /c --kubeconfig /k": "",
		"--cert-dir /c": "", // of the certificate that a node signs itself
		"--cert-dir /c --enable-server=false --register-node": "--cert-dir has no effect without an API server and with enableServer: false;--register-node has no effect without an API server",
		"--rotate-certificates --rotate-server-certificates":  "rotateCertificates has no effect without an API server;serverTLSBootstrap has no effect without an API server: the node signs its own certificate",
	} {
		_, warnings, err := Load(Options{Flags: parse(t, strings.Fields(args)...)})
		if got := strings.Join(warnings, ";"); err != nil || got != want {
			t.Errorf("%s: warnings %q, want %q; %v", args, got, want, err)
		}
	}
}

// An embedder has defaults of its own, and a file where no flag names another.
func TestFlagsOfAnEmbedder(t *testing.T) {
	dir := files(t, map[string]string{"own.yaml": configHead + "maxPods: 1\n", "flag.yaml": configHead + "maxPods: 2\noomScoreAdj: 1\n"})
	f := NewFlags()
	f.RootDir = "/var/lib/edge"
	fs := flag.NewFlagSet("edge", flag.ContinueOnError)
	f.Bind(fs)
	for _, tc := range []struct {
		args []string
		pods int32
	}{{nil, 1}, {[]string{"--config", dir + "/flag.yaml"}, 2}} {
		if err := fs.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		c, warnings, err := Load(Options{File: dir + "/own.yaml", Flags: f, Used: []string{"oomScoreAdj"}})
		if err != nil || len(warnings) > 0 || c.MaxPods != tc.pods || c.RootDir != "/var/lib/edge" {
			t.Errorf("%q: %+v, %q, %v", tc.args, c, warnings, err)
		}
	}
}

// Package flag prints defaults of zero values of each type, and values.
func TestFlagValues(t *testing.T) {
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
	NewFlags().Bind(fs)
	fs.SetOutput(io.Discard)
	fs.PrintDefaults()
	if err := fs.Parse([]string{"--manifest-url", "https://me:hidden@h/x", "--eviction-hard", "b<1,a<2", "--eviction-max-pod-grace-period", "3"}); err != nil {
		t.Fatal(err)
	}
	all := FlagValues(fs)
	for name, want := range map[string]string{
		"manifest-url": "https://me:xxxxx@h/x", "eviction-hard": "a<2,b<1", "eviction-max-pod-grace-period": "3", "root-dir": "/var/lib/kubelet", "register-node": "true",
	} {
		if all[name] != want {
			t.Errorf("--%s is %q, want %q", name, all[name], want)
		}
	}
	for _, wrong := range []string{"--eviction-max-pod-grace-period=3000000000", "--eviction-hard=a", "--eviction-soft-grace-period==1m"} {
		if err := fs.Parse([]string{wrong}); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
	if n := fs.Lookup("eviction-max-pod-grace-period").Value.(flag.Getter).Get(); !reflect.DeepEqual(n, 3) {
		t.Errorf("Get: %v", n)
	}
}
