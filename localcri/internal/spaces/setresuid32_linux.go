//go:build 386 || arm

package spaces

import "golang.org/x/sys/unix"

// There the older call takes 16 bits.
const sysSetresuid = unix.SYS_SETRESUID32
