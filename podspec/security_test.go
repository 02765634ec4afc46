package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// secured is the security context of container app under those of the pod and
// the container, in YAML.
func secured(t *testing.T, pod, container string, edit func(*Input), image ImageFacts) (*runtimeapi.LinuxContainerSecurityContext, error) {
	t.Helper()
	in := input(t, "{securityContext: "+pod+", containers: [{name: app, image: i, securityContext: "+container+"}]}")
	if edit != nil {
		edit(&in)
	}
	plan, err := Container(in, "app", ContainerOptions{Image: image})
	return plan.Config.Linux.SecurityContext, err
}

func TestSecurityDefaults(t *testing.T) {
	sec, err := secured(t, "null", "null", nil, ImageFacts{})
	if err != nil {
		t.Fatal(err)
	}
	if sec.Privileged || sec.ReadonlyRootfs || sec.NoNewPrivs || sec.Capabilities != nil || sec.SelinuxOptions != nil ||
		sec.Apparmor != nil || sec.RunAsUser != nil || sec.RunAsGroup != nil || sec.RunAsUsername != "" || len(sec.SupplementalGroups) > 0 {
		t.Errorf("security = %v, want nothing of its own", sec)
	}
	if got := sec.Seccomp.GetProfileType(); got != runtimeapi.SecurityProfile_Unconfined {
		t.Errorf("seccomp = %v, want Unconfined", got)
	}
	if len(sec.MaskedPaths) == 0 || len(sec.ReadonlyPaths) == 0 {
		t.Error("/proc is not masked")
	}
}

func TestUser(t *testing.T) {
	uid := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name, pod, container string
		image                ImageFacts
		want                 string // user, group, name of the user
	}{
		{"nobody says", "null", "null", ImageFacts{}, "- - "},
		{"the image's number", "null", "null", ImageFacts{UID: uid(33)}, "33 - "},
		{"the image's name", "null", "null", ImageFacts{User: "www"}, "- - www"},
		{"the pod's", "{runAsUser: 1, runAsGroup: 2}", "null", ImageFacts{UID: uid(33)}, "1 2 "},
		{"the container's", "{runAsUser: 1, runAsGroup: 2}", "{runAsUser: 3, runAsGroup: 4}", ImageFacts{User: "www"}, "3 4 "},
		{"each by itself", "{runAsUser: 1, runAsGroup: 2}", "{runAsGroup: 4}", ImageFacts{}, "1 4 "},
		{"root counts as said", "{runAsUser: 1, runAsGroup: 2}", "{runAsUser: 0, runAsGroup: 0}", ImageFacts{UID: uid(33)}, "0 0 "},
		{"a group alone", "null", "{runAsGroup: 4}", ImageFacts{UID: uid(33)}, "33 4 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sec, err := secured(t, tc.pod, tc.container, nil, tc.image)
			number := func(v *runtimeapi.Int64Value) string {
				if v == nil {
					return "-"
				}
				return fmt.Sprint(v.Value)
			}
			if got := number(sec.RunAsUser) + " " + number(sec.RunAsGroup) + " " + sec.RunAsUsername; err != nil || got != tc.want {
				t.Errorf("runs as %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestRunAsNonRoot(t *testing.T) {
	uid := func(n int64) *int64 { return &n }
	const (
		zero    = "container's runAsUser breaks non-root policy"
		root    = "container has runAsNonRoot and image will run as root"
		invalid = "container has runAsNonRoot and image has an invalid user id "
		unknown = "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root"
	)
	for _, tc := range []struct {
		name, pod, container string
		image                ImageFacts
		want                 string
	}{
		{"not asked", "null", "{runAsUser: 0}", ImageFacts{Ref: "r"}, ""},
		{"runAsUser", "null", "{runAsNonRoot: true, runAsUser: 5}", ImageFacts{Ref: "r", UID: uid(0)}, ""},
		{"runAsUser 0", "null", "{runAsNonRoot: true, runAsUser: 0}", ImageFacts{Ref: "r", UID: uid(5)}, zero},
		{"the pod's runAsUser 0", "{runAsUser: 0}", "{runAsNonRoot: true}", ImageFacts{Ref: "r"}, zero},
		{"the container's before the pod's", "{runAsUser: 0, runAsNonRoot: true}", "{runAsUser: 5}", ImageFacts{Ref: "r"}, ""},
		{"asked by the pod", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(0)}, root},
		{"taken back by the container", "{runAsNonRoot: true}", "{runAsNonRoot: false}", ImageFacts{Ref: "r", UID: uid(0)}, ""},
		{"image with a number", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(5)}, ""},
		{"image with a name", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", User: "www"}, unknown},
		{"image without a user", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r"}, root},
		{"image with the largest number", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(2147483647)}, ""},
		{"image with more than an ID", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(2147483648)}, invalid + "2147483648, must be 0 to 2147483647"},
		{"image with what 32 bits take for root", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(4294967296)}, invalid + "4294967296"},
		{"image with less than an ID", "{runAsNonRoot: true}", "null", ImageFacts{Ref: "r", UID: uid(-1000)}, invalid + "-1000"},
		{"image with no ID, and runAsUser", "{runAsNonRoot: true}", "{runAsUser: 5}", ImageFacts{Ref: "r", UID: uid(-1000)}, ""},
		{"image not known yet", "{runAsNonRoot: true}", "null", ImageFacts{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := secured(t, tc.pod, tc.container, nil, tc.image)
			if tc.want == "" {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			want := "spec.containers[0].securityContext.runAsNonRoot: " + tc.want
			var p Problems
			if !strings.HasPrefix(text(err), want) || !errors.As(err, &p) || p.Reason() != ReasonCreateContainerConfig {
				t.Errorf("error = %v of reason %q, want %q of reason %s", err, p.Reason(), want, ReasonCreateContainerConfig)
			}
		})
	}
}

// An ID that does not fit is none: a runtime that cuts it off would take 2^32 for root.
func TestIDsOutOfRange(t *testing.T) {
	for _, id := range []string{"-1", "2147483648", "4294967296", "9223372036854775807"} {
		for _, tc := range []struct{ pod, container, want string }{
			{"{runAsUser: ID}", "null", "spec.securityContext.runAsUser"},
			{"{runAsUser: ID}", "{runAsUser: 5}", "spec.securityContext.runAsUser"},
			{"{runAsGroup: ID}", "null", "spec.securityContext.runAsGroup"},
			{"{fsGroup: ID}", "null", "spec.securityContext.fsGroup"},
			{"{supplementalGroups: [1, ID]}", "null", "spec.securityContext.supplementalGroups[1]"},
			{"null", "{runAsUser: ID}", "spec.containers[0].securityContext.runAsUser"},
			{"null", "{runAsGroup: ID}", "spec.containers[0].securityContext.runAsGroup"},
		} {
			pod, container := strings.ReplaceAll(tc.pod, "ID", id), strings.ReplaceAll(tc.container, "ID", id)
			_, err := secured(t, pod, container, nil, ImageFacts{})
			if want := tc.want + ": invalid ID " + id + ": must be 0 to 2147483647"; text(err) != want {
				t.Errorf("%s %s: error = %v, want %q", pod, container, err, want)
			}
			if tc.pod == "null" {
				continue
			}
			if _, err := Sandbox(input(t, "{securityContext: "+pod+", containers: [{name: app, image: i}]}"), 0); !strings.HasPrefix(text(err), tc.want) {
				t.Errorf("sandbox of %s: error = %v, want one at %s", pod, err, tc.want)
			}
		}
	}
}

func TestSeccomp(t *testing.T) {
	byDefault := func(in *Input) { in.Node.SeccompDefault = true }
	const local = "{seccompProfile: {type: Localhost, localhostProfile: "
	for _, tc := range []struct {
		name, pod, container string
		edit                 func(*Input)
		want                 string
		wrong                bool
	}{
		{name: "none", pod: "null", container: "null", want: "Unconfined "},
		{name: "none, node has a default", pod: "null", container: "null", edit: byDefault, want: "RuntimeDefault "},
		{name: "none, privileged, node has a default", pod: "null", container: "{privileged: true}", edit: byDefault, want: "Unconfined "},
		{name: "the pod's", pod: "{seccompProfile: {type: RuntimeDefault}}", container: "null", want: "RuntimeDefault "},
		{name: "the container's", pod: "{seccompProfile: {type: RuntimeDefault}}", container: "{seccompProfile: {type: Unconfined}}", want: "Unconfined "},
		{name: "unconfined before the node's default", pod: "{seccompProfile: {type: Unconfined}}", container: "null", edit: byDefault, want: "Unconfined "},
		{name: "localhost", pod: "null", container: local + "a/b.json}}", want: "Localhost /var/lib/seccomp/a/b.json"},
		{name: "localhost with dots in a name", pod: "null", container: local + "a..b.json}}", want: "Localhost /var/lib/seccomp/a..b.json"},
		{name: "localhost without a file", pod: "null", container: "{seccompProfile: {type: Localhost}}", wrong: true},
		{name: "localhost with an empty file", pod: "null", container: local + "''}}", wrong: true},
		{name: "localhost outside", pod: "null", container: local + "../a.json}}", wrong: true},
		{name: "localhost outside by the way", pod: "null", container: local + "a/../../b.json}}", wrong: true},
		{name: "localhost absolute", pod: "null", container: local + "/etc/a.json}}", wrong: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sec, err := secured(t, tc.pod, tc.container, tc.edit, ImageFacts{})
			if tc.wrong {
				if want := "spec.containers[0].securityContext.seccompProfile.localhostProfile: "; !strings.HasPrefix(text(err), want) {
					t.Errorf("error = %v, want %q", err, want)
				}
				return
			}
			if got := fmt.Sprint(sec.Seccomp.GetProfileType(), " ", sec.Seccomp.GetLocalhostRef()); err != nil || got != tc.want {
				t.Errorf("seccomp = %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestAppArmor(t *testing.T) {
	for _, tc := range []struct{ name, pod, container, want string }{
		{"the runtime's own", "null", "null", "<nil>"},
		{"privileged", "null", "{privileged: true}", "Unconfined "},
		{"the pod's", "{appArmorProfile: {type: RuntimeDefault}}", "null", "RuntimeDefault "},
		{"the container's", "{appArmorProfile: {type: RuntimeDefault}}", "{appArmorProfile: {type: Unconfined}}", "Unconfined "},
		{"localhost", "null", "{appArmorProfile: {type: Localhost, localhostProfile: tight}}", "Localhost tight"},
		{"privileged with its own", "null", "{privileged: true, appArmorProfile: {type: RuntimeDefault}}", "RuntimeDefault "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sec, err := secured(t, tc.pod, tc.container, nil, ImageFacts{})
			got := "<nil>"
			if p := sec.Apparmor; p != nil {
				got = fmt.Sprint(p.ProfileType, " ", p.LocalhostRef)
			}
			older := map[string]string{"<nil>": "", "Unconfined ": "unconfined", "RuntimeDefault ": "runtime/default", "Localhost tight": "localhost/tight"}[got]
			if name := sec.ApparmorProfile; name != older { //nolint:staticcheck // older runtimes read it
				t.Errorf("its older name = %q, want %q", name, older)
			}
			if err != nil || got != tc.want {
				t.Errorf("AppArmor = %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

// An unknown value never leaves a container with less protection.
func TestUnknownWordsOfSecurity(t *testing.T) {
	for _, tc := range []struct{ pod, container, at string }{
		{"{seccompProfile: {type: runtime/default}}", "null", "spec.containers[0].securityContext.seccompProfile.type"},
		{"null", "{seccompProfile: {}}", "spec.containers[0].securityContext.seccompProfile.type"},
		{"{appArmorProfile: {type: localhost, localhostProfile: a}}", "null", "spec.containers[0].securityContext.appArmorProfile.type"},
		{"{appArmorProfile: {type: Localhost}}", "null", "spec.containers[0].securityContext.appArmorProfile.localhostProfile"},
		{"{supplementalGroupsPolicy: strict}", "null", "spec.securityContext.supplementalGroupsPolicy"},
		{"null", "{procMount: unmasked}", "spec.containers[0].securityContext.procMount"},
		{"null", "{procMount: Unmasked}", "spec.containers[0].securityContext.procMount"},
	} {
		sec, err := secured(t, tc.pod, tc.container, nil, ImageFacts{})
		if !strings.HasPrefix(text(err), tc.at+": ") {
			t.Errorf("%s %s: error = %v, want one at %s", tc.pod, tc.container, err, tc.at)
		}
		if strings.Contains(tc.at, "seccomp") && sec.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || len(sec.MaskedPaths) == 0 {
			t.Errorf("%s %s: seccomp %v, masked %v", tc.pod, tc.container, sec.Seccomp, sec.MaskedPaths)
		}
	}
}

func TestProcMount(t *testing.T) {
	for container, masked := range map[string]bool{"null": true, "{procMount: Default}": true, "{procMount: Unmasked}": false} {
		in := input(t, "{hostUsers: false, containers: [{name: app, image: i, securityContext: "+container+"}]}")
		in.Handler.UserNamespaces, in.UserNamespace = true, &IDRange{First: 65536, Length: 65536}
		if sec := compile(t, in, "app").Linux.SecurityContext; len(sec.MaskedPaths) > 0 != masked || len(sec.ReadonlyPaths) > 0 != masked {
			t.Errorf("%s: masked %v, read-only %v", container, sec.MaskedPaths, sec.ReadonlyPaths)
		}
	}
}

func TestNoNewPrivs(t *testing.T) {
	for _, tc := range []struct {
		container string
		want      bool
	}{
		{"{}", false},
		{"{allowPrivilegeEscalation: true}", false},
		{"{allowPrivilegeEscalation: false}", true},
		{"{allowPrivilegeEscalation: false, privileged: true}", false}, // which is what privileged asks for
	} {
		sec, err := secured(t, "null", tc.container, nil, ImageFacts{})
		if err != nil || sec.NoNewPrivs != tc.want {
			t.Errorf("%s: no new privileges = %t (%v), want %t", tc.container, sec.NoNewPrivs, err, tc.want)
		}
	}
}

func TestGroups(t *testing.T) {
	for _, tc := range []struct{ pod, want string }{
		{"null", "[] Merge"},
		{"{fsGroup: 3}", "[3] Merge"},
		{"{supplementalGroups: [5, 4]}", "[5 4] Merge"},
		{"{fsGroup: 3, supplementalGroups: [5, 4], supplementalGroupsPolicy: Merge}", "[3 5 4] Merge"},
		{"{supplementalGroupsPolicy: Strict}", "[] Strict"},
	} {
		sec, err := secured(t, tc.pod, "null", nil, ImageFacts{})
		if got := fmt.Sprint(sec.SupplementalGroups, sec.SupplementalGroupsPolicy); err != nil || got != tc.want {
			t.Errorf("%s: groups = %s (%v), want %s", tc.pod, got, err, tc.want)
		}
	}
}

func TestCapabilitiesAndTheRest(t *testing.T) {
	sec, err := secured(t, "{seLinuxOptions: {level: s0, type: pod_t}}",
		"{privileged: true, readOnlyRootFilesystem: true, capabilities: {add: [NET_ADMIN, SYS_TIME], drop: [ALL]}, seLinuxOptions: {user: u, role: r, type: t, level: l}}",
		nil, ImageFacts{})
	if err != nil {
		t.Fatal(err)
	}
	if !sec.Privileged || !sec.ReadonlyRootfs {
		t.Errorf("privileged %t, read-only %t; want both", sec.Privileged, sec.ReadonlyRootfs)
	}
	if c := sec.Capabilities; !slices.Equal(c.AddCapabilities, []string{"NET_ADMIN", "SYS_TIME"}) || !slices.Equal(c.DropCapabilities, []string{"ALL"}) {
		t.Errorf("capabilities = %v", c)
	}
	if o := sec.SelinuxOptions; o.User+o.Role+o.Type+o.Level != "urtl" {
		t.Errorf("SELinux = %v, want the container's", o)
	}
	sec, _ = secured(t, "{seLinuxOptions: {level: s0, type: pod_t}}", "{}", nil, ImageFacts{})
	if o := sec.SelinuxOptions; o.GetType() != "pod_t" || o.GetLevel() != "s0" {
		t.Errorf("SELinux = %v, want the pod's", o)
	}
}
