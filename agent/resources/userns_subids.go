package resources

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// UserIDs are consecutive user and group IDs that a machine reserves.
type UserIDs struct {
	First, Count uint32
}

// SubIDs returns the IDs that the machine reserves for a user, as getsubids(1) reports them
// (subuid(5)). ok is false if the program or the user does not exist: then pods may get any IDs.
// User and group IDs have to be the same single range; otherwise SubIDs returns an error.
func SubIDs(ctx context.Context, name string) (ids UserIDs, ok bool, err error) {
	program, err := exec.LookPath("getsubids")
	if err != nil {
		return ids, false, nil //nolint:nilerr // the machine reserves none
	}
	if _, err := user.Lookup(name); err != nil {
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return ids, false, nil
		}
		return ids, false, fmt.Errorf("look up user %q: %w", name, err)
	}
	return subIDs(ctx, name, func(ctx context.Context, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, program, args...).Output()
	})
}

// subIDsTimeout limits a call of getsubids, which may query a directory service.
const subIDsTimeout = 10 * time.Second

func subIDs(ctx context.Context, name string, run func(ctx context.Context, args ...string) ([]byte, error)) (ids UserIDs, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, subIDsTimeout)
	defer cancel()
	users, err := run(ctx, name)
	if err != nil {
		return ids, false, fmt.Errorf("run getsubids %s: %w", name, err)
	}
	groups, err := run(ctx, "-g", name)
	if err != nil {
		return ids, false, fmt.Errorf("getsubids -g %s: %w", name, err)
	}
	if string(users) != string(groups) {
		return ids, false, fmt.Errorf("user %s: subordinate user IDs are %.100q and group IDs %.100q; want the same", name, users, groups)
	}
	if ids, err = parseSubIDs(string(users)); err != nil {
		return ids, false, fmt.Errorf("run getsubids %s: %w", name, err)
	}
	return ids, true, nil
}

// parseSubIDs parses getsubids' output for one range: "0: kubelet 65536 7208960".
func parseSubIDs(text string) (UserIDs, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	f := strings.Fields(lines[0])
	if len(lines) != 1 || len(f) != 4 {
		return UserIDs{}, fmt.Errorf("line %.100q: want length, user, first ID and number of IDs", text)
	}
	first, err1 := strconv.ParseUint(f[2], 10, 32)
	count, err2 := strconv.ParseUint(f[3], 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return UserIDs{}, err
	}
	return UserIDs{uint32(first), uint32(count)}, nil
}
