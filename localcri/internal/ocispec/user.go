package ocispec

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// User is the user of a process.
type User struct {
	UID, GID uint32
	// Groups are the supplementary groups with GID, in ascending order.
	Groups []uint32
}

// MaxUsers is the limit for reading an image's /etc/passwd or /etc/group, in bytes; callers need
// to read no more.
const MaxUsers = 1 << 20

// ResolveUser returns the user of a container: the user in the CRI request or, if there is none,
// the user of the image. If neither names one, the user is root. passwd and group are the
// contents of the image's files, which are not trusted.
func ResolveUser(sc *runtimeapi.LinuxContainerSecurityContext, image string, passwd, group []byte) (User, error) {
	const context = "linux.security_context."
	if sc.GetRunAsUser() != nil && sc.GetRunAsUsername() != "" {
		return User{}, invalid(context+"run_as_username", sc.GetRunAsUsername(), "must be empty beside run_as_user")
	}
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "" {
		return User{}, invalid(context+"run_as_group", sc.GetRunAsGroup().GetValue(), "must come with run_as_user or run_as_username")
	}
	passwd, group = passwd[:min(len(passwd), MaxUsers)], group[:min(len(group), MaxUsers)]
	name, groupName, _ := strings.Cut(image, ":")
	field := "the image's user"
	if sc.GetRunAsUser() != nil || sc.GetRunAsUsername() != "" {
		field, groupName = context+"run_as_user", ""
		if name = sc.GetRunAsUsername(); name == "" {
			name = strconv.FormatInt(sc.GetRunAsUser().GetValue(), 10)
		}
	}
	u, login, err := user(field, name, passwd)
	if err != nil {
		return User{}, err
	}
	if g := sc.GetRunAsGroup(); g != nil {
		u.GID, err = requested(context+"run_as_group", g.GetValue())
	} else if groupName != "" {
		u.GID, err = groupID(groupName, group)
	}
	if err != nil {
		return User{}, err
	}
	groups := map[uint32]bool{u.GID: true}
	for i, g := range sc.GetSupplementalGroups() {
		gid, err := requested(fmt.Sprintf("%ssupplemental_groups[%d]", context, i), g)
		if err != nil {
			return User{}, err
		}
		groups[gid] = true
	}
	switch p := sc.GetSupplementalGroupsPolicy(); p {
	case runtimeapi.SupplementalGroupsPolicy_Merge:
		find(group, 4, func(f []string) bool {
			if gid, err := number(f[2]); err == nil && len(groups) < maxGroups && slices.Contains(strings.Split(f[3], ","), login) {
				groups[gid] = true
			}
			return false
		})
	case runtimeapi.SupplementalGroupsPolicy_Strict:
	default:
		return User{}, invalid(context+"supplemental_groups_policy", int32(p), "must be Merge or Strict")
	}
	u.Groups = slices.Sorted(maps.Keys(groups))
	return u, nil
}

// user returns the IDs of a user, which is given as a name, an ID or "", and the login name for
// lookups in /etc/group. Errors name field.
func user(field, name string, passwd []byte) (u User, login string, err error) {
	if name == "" {
		return User{}, "root", nil
	}
	// A number is an ID and never a name: an image could hide a root user with ID 0 behind
	// the name 1000.
	id, notID := number(name)
	if isNumber(name) && notID != nil {
		return User{}, "", invalid(field, name, wantID)
	}
	entry, found := find(passwd, 7, func(f []string) bool {
		if notID != nil {
			return f[0] == name
		}
		uid, err := number(f[2])
		return err == nil && uid == id
	})
	if !found {
		if notID != nil {
			return User{}, "", unable(field, name, "is not in the image's /etc/passwd")
		}
		return User{UID: id}, name, nil
	}
	uid, err1 := number(entry[2])
	gid, err2 := number(entry[3])
	if err1 != nil || err2 != nil {
		return User{}, "", unable(field, name, "has an entry in /etc/passwd whose IDs are no numbers from 0 to 2147483647")
	}
	return User{UID: uid, GID: gid}, entry[0], nil
}

// requested returns the group ID in a field of the CRI request.
func requested(field string, id int64) (uint32, error) {
	gid, err := number(strconv.FormatInt(id, 10))
	if err != nil {
		return 0, invalid(field, id, wantID)
	}
	return gid, nil
}

// groupID returns the ID of the image's group, which is given as a name or an ID.
func groupID(name string, group []byte) (uint32, error) {
	gid, err := number(name)
	if !isNumber(name) {
		if entry, found := find(group, 4, func(f []string) bool { return f[0] == name }); found {
			gid, err = number(entry[2])
		}
	}
	if err != nil {
		return 0, unable("the image's group", name, "is neither a number nor in the image's /etc/group")
	}
	return gid, nil
}

// wantID says in errors which IDs are valid; see number.
const wantID = "must be from 0 to 2147483647"

// maxGroups is the maximum number of groups of a process (NGROUPS_MAX of limits.h).
const maxGroups = 65536

// find returns the fields of the first line in a table in the format of passwd(5) that has at
// least the given number of fields and for which fits returns true.
func find(table []byte, fields int, fits func([]string) bool) ([]string, bool) {
	for line := range bytes.Lines(table) {
		f := strings.Split(string(bytes.TrimSpace(line)), ":")
		if len(f) >= fields && f[0] != "" && !strings.HasPrefix(f[0], "#") && fits(f) {
			return f, true
		}
	}
	return nil, false
}

// number parses a user or group ID. It rejects negative numbers and numbers above
// 2147483647: a program that truncates them could get 0, the ID of root.
func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt32 {
		return 0, strconv.ErrRange
	}
	return uint32(n), nil
}

func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}
