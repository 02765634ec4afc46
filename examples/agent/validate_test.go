package main

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    string // of the error; "" means that there is none
	}{
		{"syncFrequency: 1ms", ""},
		{"syncFrequency: -1ms", `syncFrequency: "-1ms": want a duration above 0`},
		{"fileCheckFrequency: -1s", `fileCheckFrequency: "-1s": want`},
		{"httpCheckFrequency: -1s", `httpCheckFrequency: "-1s": want`},
		{"runtimeRequestTimeout: -1s", `runtimeRequestTimeout: "-1s": want`},
		{"registryPullQPS: 0", ""},
		{"registryPullQPS: -1", "registryPullQPS: -1: want 0 or more"},
		{"registryBurst: -1", "registryBurst: -1: want 0 or more"},
		{"maxPods: 0", ""},
		{"maxPods: -1", "maxPods: -1: want 0 or more"},
		{"podsPerCore: -1", "podsPerCore: -1: want 0 or more"},
		{"maxParallelImagePulls: 0", "maxParallelImagePulls: 0: want 1 or more"},
		{"maxParallelImagePulls: 1", ""},
		{"maxParallelImagePulls: 2", ""},
		{"{maxParallelImagePulls: 2, serializeImagePulls: false}", ""},
		{"{maxParallelImagePulls: 2, serializeImagePulls: true}", "maxParallelImagePulls: 2: want 1, or serializeImagePulls: false beside it"},
		{"imagePullCredentialsVerificationPolicy: AlwaysVerify", ""},
		{"imagePullCredentialsVerificationPolicy: Sometimes", `imagePullCredentialsVerificationPolicy: "Sometimes": want one of NeverVerify, `},
		{"preloadedImagesVerificationAllowlist: [a.example/b]", `preloadedImagesVerificationAllowlist: ["a.example/b"]: want none, or imagePull`},
		{"{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [a.example/b]}", ""},
		{"cpuCFSQuotaPeriod: 1s", ""},
		{"cpuCFSQuotaPeriod: 999us", `cpuCFSQuotaPeriod: "999µs": want 1ms to 1s`},
		{"healthzPort: 0", ""},
		{"healthzPort: 65535", ""},
		{"healthzPort: 65536", "healthzPort: 65536: want 0 (off) to 65535"},
		{"healthzPort: -1", "healthzPort: -1: want"},
		{`healthzBindAddress: "::"`, ""},
		{"healthzBindAddress: localhost", `healthzBindAddress: "localhost": want an IP address`},
		{"staticPodURL: https://h/x", ""},
		{"staticPodURL: file:///x", `staticPodURL: "file:///x": want an http or https URL`},
		{"staticPodURL: http://", `staticPodURL: "http://": want`},
		{"staticPodURL: 'http://h:port/'", `staticPodURL: "http://h:port/": want`},
		{"containerRuntimeEndpoint: unix:///run/x.sock", ""},
		{"containerRuntimeEndpoint: /run/x.sock", ""},
		{"containerRuntimeEndpoint: npipe:////./x", `containerRuntimeEndpoint: "npipe:////./x": want unix:///path or an absolute path`},
		{"imageServiceEndpoint: x.sock", `imageServiceEndpoint: "x.sock": want unix`},
		{"clusterDNS: [10.0.0.10, 'fd00::10']", ""},
		{"clusterDNS: [10.0.0.10, dns]", `clusterDNS[1]: "dns": want an IP address`},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 1s}", ""},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 5m}", ""},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 999ms}", `crashLoopBackOff.maxContainerRestartPeriod: "999ms": want 1s to 300s`},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 301s}", `crashLoopBackOff.maxContainerRestartPeriod: "5m1s": want 1s to 300s`},
		{"systemReserved: {cpu: 500m, memory: 1Gi, ephemeral-storage: 1G, pid: '100'}", ""},
		{"systemReserved: {cpu: '-1'}", `systemReserved.cpu: "-1": want a quantity of 0 or more`},
		{"kubeReserved: {memory: 1GB}", `kubeReserved.memory: "1GB": want a quantity`},
		{"kubeReserved: {memory: ''}", `kubeReserved.memory: "": want a quantity`},
		{"kubeReserved: {mem: 1Gi}", `kubeReserved: "mem": want one of cpu, memory, ephemeral-storage, pid`},
	} {
		t.Run(tc.content, func(t *testing.T) {
			content := configHead + tc.content
			if s, ok := strings.CutPrefix(tc.content, "{"); ok {
				content = configHead + strings.ReplaceAll(strings.TrimSuffix(s, "}"), ", ", "\n")
			}
			_, warnings, path, err := load(t, content)
			switch {
			case len(warnings) > 0:
				t.Errorf("warnings %q", warnings)
			case tc.want == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "invalid configuration: "+path+": "+tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// All mistakes are told at once, and always in the same order.
func TestValidateAll(t *testing.T) {
	const content = configHead + "kubeReserved: {memory: much, cpu: some}\nmaxPods: -1\nhealthzPort: -1\nsyncFrequency: -1s\n"
	want := []string{"syncFrequency", "maxPods", "healthzPort", "kubeReserved.cpu", "kubeReserved.memory"}
	for range 10 {
		_, _, _, err := load(t, content)
		if err == nil {
			t.Fatal("no error")
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d errors, want %d: %v", len(lines), len(want), err)
		}
		for i, l := range lines {
			if !strings.Contains(l, ": "+want[i]+": ") {
				t.Fatalf("error %d is %q, want one of %s", i, l, want[i])
			}
		}
	}
}

// An agent without a source of pods would look fine and do nothing.
func TestValidateNoPods(t *testing.T) {
	c, _, err := loadConfig("", "")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseRunFlags(discard(), []string{"--pod-manifest-path="})
	if err != nil {
		t.Fatal(err)
	}
	if err := applyFlags(c, f); err == nil || !strings.Contains(err.Error(), "--pod-manifest-path, or staticPodPath") {
		t.Errorf("error %v", err)
	}
}

// What is reserved is taken off what the node offers, and never below zero.
func TestValidateReserved(t *testing.T) {
	c, _, _, err := load(t, configHead+"systemReserved: {cpu: 100m, pid: '10', memory: 1Gi}\nkubeReserved: {cpu: 150m, memory: 1024Ti}\nmaxPods: 7\n")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseRunFlags(discard(), strings.Fields("--root-dir /does/not/exist --hostname-override Me --node-ip 192.0.2.9 --node-labels a=b"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := nodeOf(f, c)
	if err != nil {
		t.Fatal(err)
	}
	cpu := n.Capacity.Cpu().MilliValue()
	if got := n.Allocatable.Cpu().MilliValue(); got != cpu-250 {
		t.Errorf("allocatable cpu %dm of %dm, want 250m less", got, cpu)
	}
	if !n.Allocatable.Memory().IsZero() || n.Capacity.Memory().IsZero() {
		t.Errorf("allocatable memory %v of %v, want 0", n.Allocatable.Memory(), n.Capacity.Memory())
	}
	if _, ok := n.Allocatable["pid"]; ok || n.Allocatable.Pods().Value() != 7 {
		t.Errorf("allocatable %v", n.Allocatable)
	}
	if n.Name != "me" || len(n.IPs) != 1 || n.IPs[0] != "192.0.2.9" || n.Labels["a"] != "b" {
		t.Errorf("node %q, %q, %v", n.Name, n.IPs, n.Labels)
	}
}
