package podspec

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What plugins give belongs to one container, and gives way to what that says
// itself.
func TestAttached(t *testing.T) {
	in := input(t, `{containers: [
		{name: app, image: i, env: [{name: GPU, value: own}]},
		{name: other, image: i}]}`)
	given := Attachment{
		Env:         []v1.EnvVar{{Name: "GPU", Value: "0"}, {Name: "GPU_LIB", Value: "$(GPU)"}},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", Readonly: true}},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu3", Permissions: "rw"}},
		CDI:         []string{"vendor.example/gpu=3"},
		Annotations: map[string]string{"vendor.example/gpu": "3", "io.kubernetes.container.restartCount": "forged"},
	}
	in.Attached = map[string]Attachment{"app": given}
	c := compile(t, in, "app")
	env := map[string]string{}
	for _, e := range c.Envs {
		env[e.Key] = string(e.Value)
	}
	if env["GPU"] != "own" || env["GPU_LIB"] != "$(GPU)" {
		t.Errorf("GPU=%q GPU_LIB=%q, want the container's own and the literal", env["GPU"], env["GPU_LIB"])
	}
	if len(c.Mounts) != 1 || mount(c.Mounts[0]) != "/opt/gpu -> /lib/gpu ro" {
		t.Errorf("mounts = %v", c.Mounts)
	}
	if len(c.Devices) != 1 || c.Devices[0].HostPath != "/dev/gpu3" || len(c.CDIDevices) != 1 || c.CDIDevices[0].Name != "vendor.example/gpu=3" {
		t.Errorf("devices = %v, CDI devices = %v", c.Devices, c.CDIDevices)
	}
	if c.Annotations["vendor.example/gpu"] != "3" || c.Annotations["io.kubernetes.container.restartCount"] != "0" {
		t.Errorf("annotations = %v", c.Annotations)
	}
	c.Devices[0].HostPath = "/dev/null" // the output is the caller's
	if given.Devices[0].HostPath != "/dev/gpu3" {
		t.Error("the input was changed")
	}
	if o := compile(t, in, "other"); len(o.Mounts)+len(o.Devices)+len(o.CDIDevices) > 0 || slices.ContainsFunc(o.Envs, func(e *runtimeapi.KeyValue) bool { return e.Key == "GPU" }) {
		t.Errorf("another container got them: %v", o)
	}
}

func TestVolumeGroups(t *testing.T) {
	in := input(t, "{securityContext: {fsGroup: 5, supplementalGroups: [6, 7]}, containers: [{name: app, image: i}]}")
	in.VolumeGroups = []int64{7, 8}
	want := []int64{5, 6, 7, 8}
	if got := compile(t, in, "app").Linux.SecurityContext.SupplementalGroups; !slices.Equal(got, want) {
		t.Errorf("groups of the container = %v, want %v", got, want)
	}
	if got := sandbox(t, in).Linux.SecurityContext.SupplementalGroups; !slices.Equal(got, want) {
		t.Errorf("groups of the sandbox = %v, want %v", got, want)
	}
}

func TestUserNamespace(t *testing.T) {
	ids := IDRange{First: 131072, Length: 65536}
	for _, tc := range []struct {
		name, spec string
		supported  bool
		ids        *IDRange
		wrong      string
		own        bool
	}{
		{"not asked for", "{}", true, &ids, "", false},
		{"that of the node", "{hostUsers: true}", true, &ids, "", false},
		{"its own", "{hostUsers: false}", true, &ids, "", true},
		{"not supported", "{hostUsers: false}", false, &ids, `spec.hostUsers: runtime handler "" does not support user namespaces`, false},
		{"no IDs", "{hostUsers: false}", true, nil, "spec.hostUsers: no range of user IDs is allocated to the pod", false},
		{"and the node's network", "{hostUsers: false, hostNetwork: true}", true, &ids, "spec.hostUsers: false cannot be combined with hostNetwork: true", false},
		{
			"and the node's others", "{hostUsers: false, hostPID: true, hostIPC: true}", true, &ids,
			"spec.hostUsers: false cannot be combined with hostPID: true; spec.hostUsers: false cannot be combined with hostIPC: true", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.spec)
			in.Pod.Spec.Containers = []v1.Container{{Name: "app", Image: "i"}}
			in.Handler.UserNamespaces, in.UserNamespace = tc.supported, tc.ids
			plan, err := Sandbox(in, 0)
			if text(err) != tc.wrong {
				t.Fatalf("error %v, want %q", err, tc.wrong)
			}
			if err != nil {
				return
			}
			for _, o := range []*runtimeapi.NamespaceOption{
				plan.Config.Linux.SecurityContext.NamespaceOptions, compile(t, in, "app").Linux.SecurityContext.NamespaceOptions,
			} {
				u := o.UsernsOptions
				if (u != nil) != tc.own {
					t.Fatalf("user namespace %v, want one: %v", u, tc.own)
				}
				if u != nil && (u.Mode != runtimeapi.NamespaceMode_POD || len(u.Uids) != 1 || len(u.Gids) != 1 ||
					u.Uids[0].HostId != ids.First || u.Uids[0].ContainerId != 0 || u.Gids[0].Length != ids.Length) {
					t.Errorf("user namespace %v", u)
				}
			}
		})
	}
}

// Omitted volumes are reported as warnings.
func TestWarnings(t *testing.T) {
	in := input(t, `{dnsConfig: {nameservers: [a, b, c]}, containers: [{name: app, image: i, envFrom: [
		{configMapRef: {name: cm}}, {prefix: "x", secretRef: {name: s}}]}]}`)
	in.ConfigMaps = map[string]*v1.ConfigMap{"cm": {Data: map[string]string{"ok": "1", "a=b": "2", "": "3"}}}
	in.Secrets = map[string]*v1.Secret{"s": {Data: map[string][]byte{"=": nil}}}
	compiled, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range compiled.Warnings {
		got = append(got, w.Reason+" "+w.Error())
	}
	want := []string{
		"DNSConfigForming spec.dnsPolicy: more than 3 nameservers, some are left out; applied are: 10.0.0.10 a b",
		"InvalidEnvironmentVariableNames spec.containers[0].envFrom[0]: keys [, a=b] of configmap prod/cm are left out: they make no valid variable name",
		"InvalidEnvironmentVariableNames spec.containers[0].envFrom[1]: keys [=] of secret prod/s are left out: they make no valid variable name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings\n%q, want\n%q", got, want)
	}
	for _, tc := range []struct {
		domain string
		dns    []string
		want   string
	}{{"", nil, ""}, {"cluster.local", nil, "MissingClusterDNS"}, {"cluster.local", []string{"10.0.0.10"}, ""}} {
		in := input(t, "{}")
		in.Node.ClusterDomain, in.Node.ClusterDNS = tc.domain, tc.dns
		plan, err := Sandbox(in, 0)
		reason := ""
		for _, w := range plan.Warnings {
			reason += w.Reason
		}
		if err != nil || reason != tc.want {
			t.Errorf("domain %q, servers %q: warnings %q (%v), want %q", tc.domain, tc.dns, reason, err, tc.want)
		}
	}
}
