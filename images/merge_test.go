package images

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// creds reads "node", or secrets as name=hash and accounts as @name.
func creds(s string) (c pullCredentials) {
	for _, w := range strings.Fields(s) {
		name, hash, secret := strings.Cut(w, "=")
		switch {
		case w == "node":
			c.NodePodsAccessible = true
		case secret:
			c.KubernetesSecrets = append(c.KubernetesSecrets, pullSecret{UID: "u-" + name, Namespace: "prod", Name: name, CredentialHash: hash})
		default:
			name = strings.TrimPrefix(name, "@")
			c.KubernetesServiceAccounts = append(c.KubernetesServiceAccounts, ServiceAccount{UID: "u-" + name, Namespace: "prod", Name: name})
		}
	}
	return c
}

// write is what creds reads.
func (c pullCredentials) write() string {
	var out []string
	if c.NodePodsAccessible {
		out = append(out, "node")
	}
	for _, s := range c.KubernetesSecrets {
		out = append(out, s.Name+"="+s.CredentialHash)
	}
	for _, a := range c.KubernetesServiceAccounts {
		out = append(out, "@"+a.Name)
	}
	return strings.Join(out, " ")
}

func TestMerge(t *testing.T) {
	for _, tc := range []struct {
		name       string
		have, more string
		want       string
		changed    bool
	}{
		{"nothing to nothing", "", "", "", false},
		{"a secret to nothing", "", "a=1", "a=1", true},
		{"an account to nothing", "", "@a", "@a", true},
		{"the node to nothing", "", "node", "node", true},
		{"nothing to a secret", "a=1", "", "a=1", false},
		{"nothing to an account", "@a", "", "@a", false},
		{"nothing to the node", "node", "", "node", false},
		{"the same secret", "a=1", "a=1", "a=1", false},
		{"another secret", "a=1", "b=2", "a=1 b=2", true},
		{"sorted", "b=2", "a=1", "a=1 b=2", true},
		{"sorted by hash too", "a=2", "a=1", "a=1 a=2", true},
		{"equal content elsewhere", "a=1", "b=1", "a=1 b=1", true},
		{"some known, some not", "a=1 b=1", "b=1 c=1", "a=1 b=1 c=1", true},
		{"twice the same", "", "a=1 a=1", "a=1", true},
		{"the same account", "@a", "@a", "@a", false},
		{"another account, sorted", "@b", "@a", "@a @b", true},
		{"an account to secrets", "a=1", "@a", "a=1 @a", true},
		{"a secret to accounts", "@a", "a=1", "a=1 @a", true},
		{"the node to secrets", "a=1 b=2", "node", "node", true},
		{"the node to accounts", "@a", "node", "node", true},
		{"the node to the node", "node", "node", "node", false},
		{"a secret to the node", "node", "a=1", "node", false},
		{"an account to the node", "node", "@a", "node", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have, more := creds(tc.have), creds(tc.more)
			got, changed := have.merged(more)
			if got.write() != tc.want || changed != tc.changed {
				t.Errorf("%q and %q = %q (changed %t), want %q (%t)", tc.have, tc.more, got.write(), changed, tc.want, tc.changed)
			}
			if have.write() != tc.have || more.write() != tc.more {
				t.Error("merging changed what was merged")
			}
			if again, changed := got.merged(more); changed || again.write() != tc.want {
				t.Errorf("once more = %q (changed %t), want the same", again.write(), changed)
			}
		})
	}
}

func TestMergeIsBounded(t *testing.T) {
	var c pullCredentials
	c, _ = c.merged(creds("other=1 zoo=1"))
	for n := range 3 * maxSecrets {
		c, _ = c.merged(creds(fmt.Sprintf("a=%03d", n)))
	}
	got := c.write()
	if n := len(c.KubernetesSecrets); n != maxSecrets {
		t.Errorf("%d secrets, want %d", n, maxSecrets)
	}
	if !strings.Contains(got, fmt.Sprintf("a=%03d ", 3*maxSecrets-1)) || !strings.HasSuffix(got, "other=1 zoo=1") {
		t.Errorf("%s: want the newest in it, and all others than the rotated", got)
	}
	var many []string
	for n := range 2 * maxSecrets {
		many = append(many, fmt.Sprintf("s%03d=1", n))
	}
	if c, _ = c.merged(creds(strings.Join(many, " "))); len(c.KubernetesSecrets) != maxSecrets {
		t.Errorf("%d secrets, want %d", len(c.KubernetesSecrets), maxSecrets)
	}
}

func TestUpdated(t *testing.T) {
	before, now := time.Unix(100, 0), time.Unix(200, 0)
	old, _ := (*pulledRecord)(nil).updated("ref", "docker.io/team/app", creds("a=1"), before)
	for _, tc := range []struct {
		name       string
		record     *pulledRecord
		repository string
		more       string
		want       map[string]string
		changed    bool
	}{
		{"no record, none", nil, "r/app", "", map[string]string{"r/app": ""}, true},
		{"no record, a secret", nil, "r/app", "a=1", map[string]string{"r/app": "a=1"}, true},
		{"none, to another repository", old, "r/app", "", map[string]string{"docker.io/team/app": "a=1"}, false},
		{"none", old, "docker.io/team/app", "", map[string]string{"docker.io/team/app": "a=1"}, false},
		{"the same", old, "docker.io/team/app", "a=1", map[string]string{"docker.io/team/app": "a=1"}, false},
		{"more", old, "docker.io/team/app", "b=1", map[string]string{"docker.io/team/app": "a=1 b=1"}, true},
		{"the node, of another repository", old, "r/app", "node", map[string]string{"docker.io/team/app": "a=1", "r/app": "node"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, changed := tc.record.updated("ref", tc.repository, creds(tc.more), now)
			got := map[string]string{}
			for k, c := range r.CredentialMapping {
				got[k] = c.write()
			}
			if !reflect.DeepEqual(got, tc.want) || changed != tc.changed {
				t.Errorf("record = %v (changed %t), want %v (%t)", got, changed, tc.want, tc.changed)
			}
			if changed && !r.LastUpdatedTime.Time.Equal(now) || !changed && r != tc.record {
				t.Errorf("%+v: want it new exactly when it changed", r)
			}
		})
	}
	if got := old.CredentialMapping["docker.io/team/app"].write(); got != "a=1" || len(old.CredentialMapping) != 1 {
		t.Errorf("the old record has become %v", old.CredentialMapping)
	}
}
