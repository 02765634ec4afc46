package main

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// invoke runs a command line in this process.
func invoke(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), stdio{strings.NewReader(""), &out, &errs}, args)
	return out.String(), errs.String(), code
}

func discard() stdio { return stdio{strings.NewReader(""), io.Discard, io.Discard} }

func TestFlagsDefaults(t *testing.T) {
	f, err := parseRunFlags(discard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := runFlags{rootDir: "/var/lib/kubelet", registerNode: true, set: map[string]bool{}}
	want.eviction = evictionFlags{
		hard: pairsFlag{between: "<"}, soft: pairsFlag{between: "<"}, grace: pairsFlag{between: "="}, reclaim: pairsFlag{between: "="},
		isolation: true,
	}
	want.gc = gcFlags{deadContainers: -1, deadPerContainer: 1}
	f.all = nil
	if !reflect.DeepEqual(*f, want) {
		t.Errorf("without flags: %+v, want %+v", *f, want)
	}
}

func TestFlagsEach(t *testing.T) {
	for _, tc := range []struct {
		args string
		got  func(f *runFlags) any
		want any
	}{
		{"--config /etc/k.yaml", func(f *runFlags) any { return f.config }, "/etc/k.yaml"},
		{"--config=/etc/k.yaml", func(f *runFlags) any { return f.config }, "/etc/k.yaml"},
		{"-config /etc/k.yaml", func(f *runFlags) any { return f.config }, "/etc/k.yaml"},
		{"--config a --config b", func(f *runFlags) any { return f.config }, "b"},
		{"--config-dir /etc/k.d", func(f *runFlags) any { return f.configDir }, "/etc/k.d"},
		{"--kubeconfig=", func(f *runFlags) any { return f.kubeconfig }, ""},
		{"--root-dir /data", func(f *runFlags) any { return f.rootDir }, "/data"},
		{"--hostname-override Edge-1.Example", func(f *runFlags) any { return f.hostname }, "edge-1.example"},
		{"--hostname-override=", func(f *runFlags) any { return f.hostname }, ""}, // as the kubelet: not given
		{"--node-ip 10.0.0.7", func(f *runFlags) any { return f.nodeIP }, "10.0.0.7"},
		{"--node-labels a=b", func(f *runFlags) any { l, _ := f.labels(); return l["a"] }, "b"},
		{"--cert-dir /pki", func(f *runFlags) any { return f.certDir }, "/pki"},
		{"--register-node", func(f *runFlags) any { return f.registerNode }, true},
		{"--register-node=false", func(f *runFlags) any { return f.registerNode }, false},
		{"--pod-manifest-path m", func(f *runFlags) any { return f.manifests }, "m"},
		{"--manifest-url https://h:1/x", func(f *runFlags) any { return f.manifestURL }, "https://h:1/x"},
		{"--container-runtime-endpoint unix:///r.sock", func(f *runFlags) any { return f.runtimeEndpoint }, "unix:///r.sock"},
		{"--runtime-cgroups /system.slice/containerd.service", func(f *runFlags) any { return f.runtimeCgroup }, "/system.slice/containerd.service"},
		{"--image-service-endpoint /i.sock", func(f *runFlags) any { return f.imageEndpoint }, "/i.sock"},
		{"--v 4", func(f *runFlags) any { return f.verbosity }, 4},
		{"-v=4", func(f *runFlags) any { return f.verbosity }, 4},
		{"--socket /run/a.sock", func(f *runFlags) any { return f.socket }, "/run/a.sock"},
		{"--exec-probes-in-flight 9", func(f *runFlags) any { return f.execProbes }, 9},
		{"--fast-probes", func(f *runFlags) any { return f.fastProbes }, true},
		{"--pulls-per-registry 3", func(f *runFlags) any { return f.pullsPerRegistry }, 3},
		{"--starts-in-flight 9", func(f *runFlags) any { return f.startsInFlight }, 9},
		{"--register-node=false --v 2", func(f *runFlags) any {
			return strings.Join(slices.Sorted(maps.Keys(f.set)), " ")
		}, "register-node v"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			f, err := parseRunFlags(discard(), strings.Fields(tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(f); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Every error names the flag, the value and what is allowed.
func TestFlagsWrong(t *testing.T) {
	long := "/" + strings.Repeat("s", 107)
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--bootstrap-kubeconfig", "/b"}, []string{`--bootstrap-kubeconfig="/b"`, "want --kubeconfig beside it"}},
		{[]string{"--secret-key-file", "/s"}, []string{`--secret-key-file="/s"`, "want --kubeconfig beside it"}},
		{[]string{"--root-dir="}, []string{`--root-dir=""`, "want a directory"}},
		{[]string{"--hostname-override", "  "}, []string{`--hostname-override="  "`, "RFC 1123"}},
		{[]string{"--hostname-override", "Under_Score"}, []string{`--hostname-override="Under_Score"`, "lower case"}},
		{[]string{"--node-ip", "10.0.0"}, []string{`--node-ip="10.0.0"`, "not an IP address"}},
		{[]string{"--node-ip", "10.0.0.1,"}, []string{`--node-ip="10.0.0.1,"`, `"" is not an IP address`}},
		{[]string{"--node-ip", "10.0.0.1,10.0.0.2"}, []string{"--node-ip=", "one of IPv4 and one of IPv6"}},
		{[]string{"--node-ip", "10.0.0.1,fd00::1,fd00::2"}, []string{"--node-ip=", "one of IPv4 and one of IPv6"}},
		{[]string{"--node-ip", "0.0.0.0,::"}, []string{"--node-ip=", `"0.0.0.0" is not the address of a machine`}},
		{[]string{"--node-ip", "224.0.0.1"}, []string{"--node-ip=", "not the address of a machine"}},
		{[]string{"--manifest-url", "ftp://h/x"}, []string{`--manifest-url="ftp://h/x"`, "http or https"}},
		{[]string{"--manifest-url", "h/x"}, []string{`--manifest-url="h/x"`, "http or https"}},
		{[]string{"--container-runtime-endpoint", "tcp://h:1"}, []string{`--container-runtime-endpoint="tcp://h:1"`, "unix:///path"}},
		{[]string{"--image-service-endpoint", "x.sock"}, []string{`--image-service-endpoint="x.sock"`, "unix:///path"}},
		{[]string{"--socket", long}, []string{`--socket="` + long, "at most 107 bytes"}},
		{[]string{"--exec-probes-in-flight", "-1"}, []string{"--exec-probes-in-flight=-1", "1 or more"}},
		{[]string{"--pulls-per-registry", "-1"}, []string{"--pulls-per-registry=-1", "1 or more"}},
		{[]string{"--starts-in-flight", "-1"}, []string{"--starts-in-flight=-1", "1 or more"}},
		{[]string{"--starts-in-flight", "few"}, []string{`--starts-in-flight="few"`, "want a whole number"}},
		{[]string{"--v", "99999999999999999999"}, []string{`-v="99999999999999999999"`, "want a whole number"}},
		{[]string{"--register-node=maybe"}, []string{`--register-node="maybe"`, "want true or false"}},
		{[]string{"--root-dir"}, []string{"-root-dir", "needs an argument"}},
		{[]string{"--no-such"}, []string{"-no-such", "agent run -h lists the flags"}},
		{[]string{"web.yaml"}, []string{"run takes no argument", `"web.yaml"`}},
		{[]string{"--", "--v=2"}, []string{"run takes no argument", `"--v=2"`}},
		// All mistakes at once.
		{[]string{"--bootstrap-kubeconfig", "/k", "--node-ip", "x", "--node-labels", "a=%"}, []string{"--bootstrap-kubeconfig", "--node-ip", "--node-labels"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			_, err := parseRunFlags(discard(), tc.args)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
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
			"--node-labels: a.k8s.io/b, node-role.kubernetes.io/master: of the kubernetes.io and k8s.io domains only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var args []string
			for _, a := range tc.args {
				args = append(args, "--node-labels", a)
			}
			f, err := parseRunFlags(discard(), args)
			if tc.want == nil {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := f.labels(); !maps.Equal(got, tc.want) {
				t.Errorf("labels %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFlagsNodeIPs(t *testing.T) {
	all := []string{"127.0.0.1", "::1", "fe80::1", "10.0.0.7", "fd00::7"}
	for _, tc := range []struct {
		flag string
		all  []string
		want []string
	}{
		{"192.0.2.1", all, []string{"192.0.2.1"}},
		{" fd00::1 , 192.0.2.1", all, []string{"fd00::1", "192.0.2.1"}},
		{"0.0.0.0", all, []string{"10.0.0.9"}}, // the detected one
		{"::", all, []string{"fd00::7"}},
		{"::", []string{"127.0.0.1", "::1"}, []string{"10.0.0.9"}}, // better than none
	} {
		asked, err := (&runFlags{nodeIP: tc.flag}).ips()
		if err != nil {
			t.Errorf("%s: %v", tc.flag, err)
			continue
		}
		if got := nodeIPs(asked, []string{"10.0.0.9"}, tc.all); !slices.Equal(got, tc.want) {
			t.Errorf("--node-ip=%s on a machine with %v: %v, want %v", tc.flag, tc.all, got, tc.want)
		}
	}
}

func TestFlagsSubcommand(t *testing.T) {
	for _, tc := range []struct{ args, name, rest string }{
		{"", "", ""},
		{"--v 4", "", "--v 4"},
		{"run --v 4", "run", "--v 4"},
		{"get pods", "get", "pods"},
		{"--root-dir get get pods", "get", "--root-dir get pods"},
		{"--root-dir=/d get pods", "get", "--root-dir=/d pods"},
		{"--register-node run", "run", "--register-node"},
		{"-n kube-system get pods", "get", "-n kube-system pods"},
		{"-o json get pods", "get", "-o json pods"},
		{"--tail 3 -f logs web", "logs", "--tail 3 -f web"},
		{"-- get pods", "", "-- get pods"},
		{"exec web -- get", "exec", "web -- get"},
		{"--root-dir", "", "--root-dir"},
	} {
		name, rest := split(strings.Fields(tc.args))
		if got := strings.Join(rest, " "); name != tc.name || got != tc.rest {
			t.Errorf("agent %s: command %q with %q, want %q with %q", tc.args, name, got, tc.name, tc.rest)
		}
	}
}

func TestFlagsHelp(t *testing.T) {
	for _, args := range []string{"help", "--help", "-h", "help --help"} {
		stdout, stderr, code := invoke(t, strings.Fields(args)...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "agent describe  pod NAME") {
			t.Errorf("agent %s: exit %d, stderr %q, stdout\n%s", args, code, stderr, stdout)
		}
	}
	for _, c := range commands() {
		for _, args := range [][]string{{c.name, "-h"}, {c.name, "--help"}, {"help", c.name}, {"-h", c.name}} {
			stdout, stderr, code := invoke(t, args...)
			if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "usage: agent "+c.name) || !strings.Contains(stdout, c.short) {
				t.Errorf("agent %v: exit %d, stderr %q, stdout\n%s", args, code, stderr, stdout)
			}
		}
	}
	stdout, _, _ := invoke(t, "run", "-h")
	fs, _ := newRunFlags()
	for _, want := range []string{"--root-dir DIRECTORY", "(default /var/lib/kubelet)", "\n  -v LEVEL ", "\n  --register-node  "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("agent run -h does not contain %q:\n%s", want, stdout)
		}
	}
	if got, want := strings.Count(stdout, "\n  -"), countFlags(fs); got != want {
		t.Errorf("agent run -h lists %d flags of %d:\n%s", got, want, stdout)
	}
	if stdout, _, _ := invoke(t, "logs", "-h"); !strings.Contains(stdout, "-n, --namespace NAMESPACE") {
		t.Errorf("two names of a flag share no line:\n%s", stdout)
	}
}

func TestFlagsVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		stdout, stderr, code := invoke(t, args)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "agent ") || !strings.Contains(stdout, " linux/") {
			t.Errorf("agent %s: exit %d, stderr %q, stdout %q", args, code, stderr, stdout)
		}
	}
}

// A mistake ends with code 1 and one line that says what to do.
func TestFlagsExitCode(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"fly", `unknown command "fly"; there are run, get, describe, logs, exec, why, top, images, fit, version`},
		{"help fly", `unknown command "fly"; there are`},
		{"version 2", `version takes no argument, got "2"`},
		{"run pods", `run takes no argument, got "pods"`},
		{"--no-such", "flag provided but not defined: -no-such; agent run -h lists the flags"},
		{"get pods --no-such", "flag provided but not defined: -no-such; agent get -h lists the flags"},
		{"--v x", `-v="x": want a whole number`},
		{"logs web --since 5", `--since="5": want a duration such as 30s, 5m or 1h30m`},
		{"--config /does/not/exist", "open /does/not/exist: no such file or directory"},
		{"--root-dir /does/not/exist", "nothing to run: give --pod-manifest-path, or staticPodPath or staticPodURL in --config, or --kubeconfig"},
	} {
		stdout, stderr, code := invoke(t, strings.Fields(tc.args)...)
		if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "agent: "+tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q; want %q", tc.args, code, stdout, stderr, tc.want)
		}
	}
	// Several mistakes are one line each.
	_, stderr, _ := invoke(t, "--secret-key-file", "/k", "--node-ip", "x")
	if lines := strings.Split(strings.TrimSpace(stderr), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "agent: --node-ip") {
		t.Errorf("stderr %q", stderr)
	}
}

func countFlags(fs *flag.FlagSet) (n int) {
	fs.VisitAll(func(*flag.Flag) { n++ })
	return n
}
