package images

import (
	"strings"
	"testing"
)

func TestTrimming(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, tc := range []struct{ image, repository, written string }{
		{"app", "docker.io/library/app", "app"},
		{"app:1", "docker.io/library/app", "app"},
		{"app" + digest, "docker.io/library/app", "app"},
		{"app:1" + digest, "docker.io/library/app", "app"},
		{"team/app", "docker.io/team/app", "team/app"},
		{"team/app:1", "docker.io/team/app", "team/app"},
		{"docker.io/app:1", "docker.io/library/app", "docker.io/app"},
		{"docker.io/team/app:1", "docker.io/team/app", "docker.io/team/app"},
		{"index.docker.io/team/app:1", "docker.io/team/app", "index.docker.io/team/app"},
		{"registry.example/app", "registry.example/app", "registry.example/app"},
		{"registry.example/app:1", "registry.example/app", "registry.example/app"},
		{"registry.example/app" + digest, "registry.example/app", "registry.example/app"},
		{"registry.example/a/b/c/app:1.2-rc_3" + digest, "registry.example/a/b/c/app", "registry.example/a/b/c/app"},
		{"registry.example:5000/app", "registry.example:5000/app", "registry.example:5000/app"},
		{"registry.example:5000/app:1", "registry.example:5000/app", "registry.example:5000/app"},
		{"registry.example:5000/app:1" + digest, "registry.example:5000/app", "registry.example:5000/app"},
		{"localhost/app:1", "localhost/app", "localhost/app"},
		{"localhost:5000/app", "localhost:5000/app", "localhost:5000/app"},
		{"127.0.0.1:5000/team/app:1", "127.0.0.1:5000/team/app", "127.0.0.1:5000/team/app"},
		{"[::1]:5000/app:1", "[::1]:5000/app", "[::1]:5000/app"},
		{"[::1]/app", "[::1]/app", "[::1]/app"},
		{"Not A Name", "", "Not A Name"},
		{"", "", ""},
	} {
		if r, w := repository(tc.image), asWritten(tc.image); r != tc.repository || w != tc.written {
			t.Errorf("%q is of %q, written %q; want %q, %q", tc.image, r, w, tc.repository, tc.written)
		}
	}
}

func TestSpares(t *testing.T) {
	for _, tc := range []struct {
		verify Verify
		allow  string
		image  string
		ours   bool
		want   bool
	}{
		{NeverVerify, "", "app:1", false, true},
		{NeverVerify, "", "app:1", true, true},
		{NeverVerifyPreloadedImages, "", "app:1", false, true},
		{NeverVerifyPreloadedImages, "", "app:1", true, false},
		{"", "", "app:1", false, true}, // the same
		{"", "", "app:1", true, false},
		{AlwaysVerify, "", "app:1", false, false},
		{AlwaysVerify, "", "app:1", true, false},

		{NeverVerifyAllowlistedImages, "", "registry.example/app:1", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example/app:1", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example/app:1", true, false},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example/app@sha256:" + strings.Repeat("a", 64), false, true},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example/app2", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example/app/x", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/app", "registry.example:5000/app", false, false},
		{NeverVerifyAllowlistedImages, "other.example/x registry.example/app", "registry.example/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/*", "registry.example/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/*", "registry.example/team/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/*", "registry.example.org/app", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/*", "app", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/team/*", "registry.example/team/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/team/*", "registry.example/team/sub/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example/team/*", "registry.example/team", false, false},
		{NeverVerifyAllowlistedImages, "registry.example/team/*", "registry.example/teams/app", false, false},
		{NeverVerifyAllowlistedImages, "registry.example:5000/*", "registry.example:5000/app", false, true},
		{NeverVerifyAllowlistedImages, "registry.example:5000/*", "registry.example/app", false, false},
		{NeverVerifyAllowlistedImages, "docker.io/*", "app", false, true},
		{NeverVerifyAllowlistedImages, "docker.io/*", "team/app", false, true},
		{NeverVerifyAllowlistedImages, "docker.io/*", "localhost/app", false, false},
		{NeverVerifyAllowlistedImages, "index.docker.io/*", "app", false, true},
		{NeverVerifyAllowlistedImages, "docker.io/library/*", "app", false, true},
		{NeverVerifyAllowlistedImages, "docker.io/library/*", "team/app", false, false},
		{NeverVerifyAllowlistedImages, "team/*", "docker.io/team/app", false, true},
		{NeverVerifyAllowlistedImages, "team/*", "team.example/app", false, false},
		{NeverVerifyAllowlistedImages, "app", "docker.io/library/app:1", false, true},
		{NeverVerifyAllowlistedImages, "app", "team/app", false, false},
		{NeverVerifyAllowlistedImages, "app", "Not A Name", false, false},
	} {
		p, err := newPolicy(tc.verify, strings.Fields(tc.allow))
		if err != nil {
			t.Errorf("%s [%s]: %v", tc.verify, tc.allow, err)
			continue
		}
		if got := p.spares(tc.image, tc.ours); got != tc.want {
			t.Errorf("%s [%s] spares %s (ours: %t) = %t, want %t", tc.verify, tc.allow, tc.image, tc.ours, got, tc.want)
		}
	}
}

func TestPolicyErrors(t *testing.T) {
	for _, tc := range []struct {
		verify Verify
		allow  string
		want   string
	}{
		{"Sometimes", "", `Config.Verify "Sometimes": want NeverVerify, `},
		{AlwaysVerify, "app", "Config.Allowlist is only for Config.Verify NeverVerifyAllowlistedImages"},
		{"", "app", "Config.Allowlist is only for"},
		{NeverVerifyAllowlistedImages, "app:1", `Config.Allowlist[0] "app:1": want a repository without tag and digest`},
		{NeverVerifyAllowlistedImages, "app@sha256:" + strings.Repeat("a", 64), "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "/*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "//*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "*/*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "*/app", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "*.example/*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "registry.example/te*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "registry.example/*/app", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "registry.example/team:1/*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "registry.example/", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "registry.example//*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "https://registry.example/*", "Config.Allowlist[0]"},
		{NeverVerifyAllowlistedImages, "good,bad:1,good/*", `Config.Allowlist[1] "bad:1"`},
		{NeverVerifyAllowlistedImages, "good,,", `Config.Allowlist[1] ""`},
		{NeverVerifyAllowlistedImages, " good", `Config.Allowlist[0] " good"`},
		{NeverVerifyAllowlistedImages, "good ", `Config.Allowlist[0] "good "`},
	} {
		var allow []string
		if tc.allow != "" {
			allow = strings.Split(tc.allow, ",")
		}
		if _, err := newPolicy(tc.verify, allow); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s [%s]: error = %v, want %s", tc.verify, tc.allow, err, tc.want)
		}
	}
}

func TestDecide(t *testing.T) {
	const app = "registry.example/app"
	for _, tc := range []struct {
		name    string
		verify  Verify // AlwaysVerify
		ref     string // "ref"
		image   string // app:1
		mapping string // repository: credentials, ...; "" is no record
		known   known
		asker   string // as creds reads
		want    string // the result
		learn   string
	}{
		{name: "no reference", ref: "none", mapping: app + ": node", want: checkMustPull},
		{name: "no reference, never verify", ref: "none", verify: NeverVerify, want: checkPolicy},
		{name: "unreadable", known: known{unreadable: true}, want: checkUnreadable},
		{name: "unreadable, spare preloaded", verify: NeverVerifyPreloadedImages, known: known{unreadable: true}, asker: "a=1", want: checkUnreadable},
		{name: "unreadable, never verify", verify: NeverVerify, known: known{unreadable: true}, want: checkPolicy},
		{name: "never verify, another's", verify: NeverVerify, mapping: app + ": b=2", want: checkPolicy},

		{name: "preloaded", verify: NeverVerifyPreloadedImages, want: checkPolicy},
		{name: "preloaded, verify always", asker: "a=1", want: checkMustPull},
		{name: "being pulled", verify: NeverVerifyPreloadedImages, known: known{pulling: true}, asker: "a=1", want: checkMustPull},
		{name: "pulled, another's", verify: NeverVerifyPreloadedImages, mapping: app + ": b=2", asker: "a=1", want: checkMustPull},

		{name: "no record", want: checkMustPull},
		{name: "of no repository", mapping: "none", asker: "a=1", want: checkMustPull},
		{name: "of another repository", mapping: "registry.example/other: node", asker: "a=1", want: checkMustPull},
		{name: "the repository's beginning", mapping: "registry.example: node", want: checkMustPull},
		{name: "the node's", mapping: app + ": node", want: checkRecord},
		{name: "the node's, with a secret", mapping: app + ": node", asker: "a=1", want: checkRecord},
		{name: "by digest", image: app + "@sha256:" + strings.Repeat("a", 64), mapping: app + ": node", want: checkRecord},
		{name: "short name", image: "app:1", mapping: "docker.io/library/app: node", want: checkRecord},
		{name: "short name, recorded so", image: "app:1", mapping: "app: node", want: checkRecord},
		{name: "recorded by both names", image: "app:1", mapping: "docker.io/library/app: a=1, app: b=2", asker: "b=2", want: checkRecord},
		{name: "full name, recorded by a short one", image: "docker.io/library/app", mapping: "app: node", want: checkMustPull},

		{name: "nobody's", mapping: app + ": ", asker: "a=1", want: checkMustPull},
		{name: "without credentials", mapping: app + ": a=1", want: checkMustPull},
		{name: "the same secret", mapping: app + ": a=1", asker: "a=1", want: checkRecord},
		{name: "one of many", mapping: app + ": a=1 b=2 c=3", asker: "x=9 c=3", want: checkRecord},
		{name: "equal content elsewhere", mapping: app + ": a=1", asker: "b=1", want: checkRecord, learn: "b=1"},
		{name: "its content has changed", mapping: app + ": a=1", asker: "a=2", want: checkMustPull},
		{name: "another secret", mapping: app + ": a=1", asker: "b=2", want: checkMustPull},
		{name: "no hash", mapping: app + ": a=", asker: "a=", want: checkMustPull},
		{name: "no hash of the asker", mapping: app + ": a=1", asker: "a=", want: checkMustPull},
		{name: "secret of another repository", mapping: "registry.example/other: a=1, " + app + ": b=2", asker: "a=1", want: checkMustPull},

		{name: "the same account", mapping: app + ": @a", asker: "@a", want: checkRecord},
		{name: "another account", mapping: app + ": @a", asker: "@b", want: checkMustPull},
		{name: "account without a UID", mapping: app + ": @", asker: "@", want: checkMustPull},
		{name: "account, and not the secret", mapping: app + ": a=1 @a", asker: "a=2 @a", want: checkRecord},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policy{verify: tc.verify}
			if tc.verify == "" {
				p.verify = AlwaysVerify
			}
			ref, image := "ref", app+":1"
			if tc.ref == "none" {
				ref = ""
			}
			if tc.image != "" {
				image = tc.image
			}
			if tc.mapping != "" {
				tc.known.record = &pulledRecord{CredentialMapping: map[string]pullCredentials{}}
				for part := range strings.SplitSeq(tc.mapping, ", ") {
					if repository, c, ok := strings.Cut(part, ": "); ok {
						tc.known.record.CredentialMapping[repository] = creds(c)
					}
				}
				for _, c := range tc.known.record.CredentialMapping {
					withoutUID(c.KubernetesServiceAccounts)
				}
			}
			got := p.decide(ref, image, tc.known, func() asker {
				c := creds(tc.asker)
				withoutUID(c.KubernetesServiceAccounts)
				a := asker{secrets: c.KubernetesSecrets}
				if len(c.KubernetesServiceAccounts) > 0 {
					a.accounts = c.KubernetesServiceAccounts[:1]
				}
				return a
			})
			use := tc.want == checkPolicy || tc.want == checkRecord
			if got.use != use || got.result != tc.want || got.learn.write() != tc.learn {
				t.Errorf("decided %t, %s, learns %q; want %t, %s, %q", got.use, got.result, got.learn.write(), use, tc.want, tc.learn)
			}
		})
	}
}

// withoutUID takes the UID from accounts without a name.
func withoutUID(accounts []ServiceAccount) {
	for i := range accounts {
		if accounts[i].Name == "" {
			accounts[i].UID = ""
		}
	}
}
