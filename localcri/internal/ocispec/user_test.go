package ocispec

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	passwd = "# users\nroot:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/:/bin/sh\nbig:x:4294967296:0::/:\nneg:x:-1:0::/:\n2000:x:0:0::/:\nshort:x:1\n\n"
	groups = "root:x:0:\nwheel:x:10:root,app\nstaff:x:50:app\nbad:x:-5:app\n"
)

func TestResolveUser(t *testing.T) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	type sc = runtimeapi.LinuxContainerSecurityContext
	for _, tc := range []struct {
		name  string
		sc    *sc
		image string
		want  User
		code  codes.Code
		text  string
	}{
		{"nobody says", &sc{}, "", User{0, 0, []uint32{0, 10}}, 0, ""},
		{"the image's name", &sc{}, "app", User{1000, 1001, []uint32{10, 50, 1001}}, 0, ""},
		{"the image's number", &sc{}, "1000", User{1000, 1001, []uint32{10, 50, 1001}}, 0, ""},
		{"a number of nobody", &sc{}, "5", User{5, 0, []uint32{0}}, 0, ""},
		{"the image's group", &sc{}, "app:staff", User{1000, 50, []uint32{10, 50}}, 0, ""},
		{"the image's group by number", &sc{}, "5:7", User{5, 7, []uint32{7}}, 0, ""},
		{"the container's", &sc{RunAsUser: id(7), RunAsGroup: id(8)}, "app:staff", User{7, 8, []uint32{8}}, 0, ""},
		{"the container's name", &sc{RunAsUsername: "app"}, "root", User{1000, 1001, []uint32{10, 50, 1001}}, 0, ""},
		{"merged", &sc{RunAsUser: id(1000), SupplementalGroups: []int64{3}}, "", User{1000, 1001, []uint32{3, 10, 50, 1001}}, 0, ""},
		{"strict", &sc{RunAsUser: id(1000), SupplementalGroups: []int64{3}, SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict}, "", User{1000, 1001, []uint32{3, 1001}}, 0, ""},
		{"group alone", &sc{RunAsGroup: id(8)}, "", User{}, codes.InvalidArgument, "run_as_group 8"},
		{"two users", &sc{RunAsUser: id(8), RunAsUsername: "app"}, "", User{}, codes.InvalidArgument, "run_as_username"},
		{"unknown", &sc{}, "ghost", User{}, codes.FailedPrecondition, `"ghost"`},
		{"unknown group", &sc{}, "app:ghosts", User{}, codes.FailedPrecondition, `"ghosts"`},
		{"too large", &sc{}, "2147483648", User{}, codes.InvalidArgument, "2147483647"},
		{"as large as can be", &sc{}, "2147483647", User{math.MaxInt32, 0, []uint32{0}}, 0, ""},
		{"wraps to root", &sc{}, "4294967296", User{}, codes.InvalidArgument, "2147483647"},
		{"a number that is root's name", &sc{RunAsUser: id(2000)}, "", User{2000, 0, []uint32{0}}, 0, ""},
		{"a name that wraps to root", &sc{}, "big", User{}, codes.FailedPrecondition, "no numbers"},
		{"negative", &sc{RunAsUser: id(-1)}, "", User{}, codes.InvalidArgument, "2147483647"},
		{"negative group", &sc{RunAsUser: id(1), SupplementalGroups: []int64{-1}}, "", User{}, codes.InvalidArgument, "supplemental_groups[0] -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ResolveUser(tc.sc, tc.image, []byte(passwd), []byte(groups))
			if status.Code(err) != tc.code || tc.code != 0 && !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%v, want %v with %q", err, tc.code, tc.text)
			}
			if got.UID != tc.want.UID || got.GID != tc.want.GID || !slices.Equal(got.Groups, tc.want.Groups) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

func FuzzResolveUser(f *testing.F) {
	for _, image := range []string{"", "app", "0:0", "app:wheel", "4294967296", ":", "a:b:c"} {
		f.Add(image, []byte(passwd), []byte(groups), int64(-1))
	}
	f.Fuzz(func(t *testing.T, image string, passwd, group []byte, supplemental int64) {
		sc := &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{supplemental}}
		u, err := ResolveUser(sc, image, passwd, group)
		if err != nil {
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.FailedPrecondition {
				t.Errorf("code %v", c)
			}
			return
		}
		if u.UID > math.MaxInt32 || u.GID > math.MaxInt32 || len(u.Groups) > maxGroups+1 || !slices.IsSorted(u.Groups) || !slices.Contains(u.Groups, u.GID) {
			t.Errorf("user %v", u)
		}
		name, _, _ := strings.Cut(image, ":")
		if n, err := number(name); err == nil && n != u.UID {
			t.Errorf("user %q is %d", image, u.UID)
		}
	})
}
