//go:build 386 || arm

package spaces

import "golang.org/x/sys/unix"

// On this architecture the older call takes only 16 bits.
const sysSetresuid = unix.SYS_SETRESUID32
