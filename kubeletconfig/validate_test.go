package kubeletconfig

import (
	"regexp"
	"strings"
	"testing"
)

// wantMistake loads a main file, which must lead to no warning, and to an error that
// begins with want; to none, if that is "".
func wantMistake(t *testing.T, content, want string) {
	t.Helper()
	_, warnings, path, err := load(t, content)
	switch {
	case len(warnings) > 0:
		t.Errorf("warnings %q", warnings)
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && (err == nil || !regexp.MustCompile(`^invalid configuration: `+regexp.QuoteMeta(path)+`:\d+: `+regexp.QuoteMeta(want)).MatchString(err.Error())):
		t.Errorf("error %v, want %q", err, want)
	}
}

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
		{"{maxParallelImagePulls: 2, serializeImagePulls: true}", "maxParallelImagePulls: 2: want 1, or serializeImagePulls: false"},
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
		{"containerRuntimeEndpoint: localcri", ""},
		{"imageServiceEndpoint: localcri", `imageServiceEndpoint: "localcri": want unix:///path or an absolute path`},
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
			wantMistake(t, content, tc.want)
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

func TestLoggingFields(t *testing.T) {
	for content, want := range map[string]string{
		"logging: {format: json, flushFrequency: 1s, options: {json: {splitStream: true, infoBufferSize: 1Ki}}}":             "",
		"logging: {format: text, flushFrequency: 5000000000, verbosity: 3, vmodule: [{filePattern: 'node*', verbosity: 4}]}": "",
		"logging: {format: xml}": `logging.format: "xml": want one of text, json`,
		"logging: {format: json, vmodule: [{filePattern: a, verbosity: 4}]}": "logging.vmodule: 1: want none, or logging.format: text",
		"logging: {vmodule: [{filePattern: 'a=b', verbosity: 4}]}":           `logging.vmodule[0].filePattern: "a=b": want the name`,
		"logging: {vmodule: [{filePattern: '[', verbosity: 4}]}":             `logging.vmodule[0].filePattern: "[": want the name`,
		"logging: {flushFrequency: -1s}":                                     "logging.flushFrequency",
		"logging: {options: {text: {infoBufferSize: 1Gi}}}":                  "logging.options.text.infoBufferSize: 1073741824: want 0 to 64Mi",
	} {
		_, warnings, err := loadWith(t, configHead+content+"\n")
		if want == "" && (err != nil || len(warnings) > 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, %q; want %q", content, err, warnings, want)
		}
	}
	c, warnings, err := loadWith(t, configHead, strings.Fields("--logging-format=text --vmodule=a=4,b*=5 --vmodule=c=0 --log-flush-frequency=1s --log-text-split-stream --log-text-info-buffer-size=1Ki")...)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if l := c.Logging; l.Format != "text" || len(l.VModule) != 3 || l.VModule[1].FilePattern != "b*" || l.VModule[1].Verbosity != 5 ||
		!l.Options.Text.SplitStream || l.Options.Text.InfoBufferSize.Value() != 1024 || l.FlushFrequency.Duration.Duration.String() != "1s" {
		t.Errorf("%+v", l)
	}
}
