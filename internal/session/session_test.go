package session_test

import (
	"testing"
)

// Every case is a session of its own.
func TestSession(t *testing.T) {
	t.Parallel()
	tests := map[string][]step{
		"variables": {
			{cmd: "x=1; y='a  b'; export Z=z"},
			{cmd: `echo "$x|$y|$Z"; env | grep ^Z=; env | grep -c ^x=`, out: "1|a  b|z\nZ=z\n0\n", code: 1},
		},
		"values of any kind": {
			{cmd: `v=$'quote\' dollar$x back\\slash nl\n tab\t \x01 é \xff "'; export W='$(touch {work}/bad) ` + "`id`" + `'`},
			{cmd: `printf %s "$v" | od -An -c | tr -d ' \n'; echo; echo "$W"; ls`,
				out: `quote'dollar$xback\slashnl\ntab\t001` + "303251377\"\n$(touch {work}/bad) `id`\n"},
		},
		"a name like ours": {
			{cmd: "_cubby_x=1 cubby=2"},
			{cmd: "echo $_cubby_x $cubby", out: "1 2\n"},
		},
		"arrays": {
			{cmd: "a=(1 'b c' ''); a[7]=x; declare -A m=([k]='v w' ['a]b']=2); declare -A empty; declare -i n=3"},
			{cmd: `echo "${a[1]}|${#a[@]}|${a[7]}|${m[k]}|${m['a]b']}"; empty[q]=1; echo ${!empty[@]}; n+=4; echo $n`,
				out: "b c|4|x|v w|2\nq\n7\n"},
		},
		"readonly": {
			{cmd: "readonly R=1"},
			{cmd: "echo $R; R=2; echo no", out: "1\n", err: "R: readonly variable", code: 1},
			{cmd: "echo $R", out: "1\n"},
		},
		"nameref, lower and upper case": {
			{cmd: "declare -n ref=target; target=7; declare -l low=ABC; declare -u up=abc"},
			{cmd: "echo $ref $low $up; ref=8; low=XYZ; echo $target $low", out: "7 abc ABC\n8 xyz\n"},
		},
		"unset stays unset": {
			{cmd: "echo $BASE; unset BASE", out: "base\n"},
			{cmd: "echo ${BASE-none}; env | grep -c ^BASE=", out: "none\n0\n", code: 1},
		},
		"unexported stays unexported": {
			{cmd: "export -n BASE"},
			{cmd: "echo $BASE; env | grep -c ^BASE=", out: "base\n0\n", code: 1},
		},
		"the environment of children is clean": {
			{cmd: "true"},
			{cmd: "env | grep -ci '^[^=]*cubby'; env | grep ^HOME", out: "0\nHOME={home}\n"},
			{cmd: "compgen -v | grep -c __cubby_main; bash -c 'echo ${__cubby_name-clean}'", out: "0\nclean\n"},
		},
		"the directory": {
			{cmd: "pwd; mkdir 'a b'; cd 'a b'", out: "{work}\n"},
			{cmd: "pwd; cd -", out: "{work}/a b\n{work}\n"},
			{cmd: "pwd; echo $OLDPWD", out: "{work}\n{work}/a b\n"},
			{cmd: "cd -; cd ..; pwd", out: "{work}/a b\n{work}\n"},
		},
		"a relative cd": {
			{cmd: "mkdir -p a/b; cd a"},
			{cmd: "cd b"},
			{cmd: "pwd; cd ../..", out: "{work}/a/b\n"},
			{cmd: "pwd", out: "{work}\n"},
		},
		"a bad cd keeps the directory": {
			{cmd: "mkdir d; cd d"},
			{cmd: "cd nowhere", err: "cd: nowhere: No such file or directory", code: 1},
			{cmd: "pwd", out: "{work}/d\n"},
			{cmd: "cd nowhere; pwd", out: "{work}/d\n", err: "No such file"},
		},
		"a bare cd and one home": {
			{cmd: "cd /; cd; pwd; cd ~; pwd; cd; cd $HOME; pwd", out: "{work}\n{home}\n{home}\n"},
			{cmd: "cd", out: ""},
			{cmd: "pwd", out: "{work}\n"},
		},
		"cd with options": {
			{cmd: "mkdir real; ln -s real link; cd -P link; pwd; cd ../link; pwd", out: "{work}/real\n{work}/link\n"},
			{cmd: "pwd; pwd -P", out: "{work}/link\n{work}/real\n"},
		},
		"a cd of their own": {
			{cmd: `cd() { echo "to $1"; builtin cd "$@"; }`},
			{cmd: "cd /; pwd; unset -f cd", out: "to /\n/\n"},
			{cmd: "cd; pwd", out: "{home}\n"},
		},
		"a directory that went away": {
			{cmd: "mkdir d; cd d"},
			{cmd: "rmdir ../d"},
			{cmd: "pwd", out: "{work}\n", err: "{work}/d cannot be entered any more; this shell is in {work}"},
			{cmd: "pwd", out: "{work}\n"},
		},
		"a directory that is removed under the shell": {
			{cmd: "mkdir d; cd d; rmdir ../d; x=1"},
			{cmd: "echo $x", out: "1\n", err: "cannot be entered"},
		},
		"a directory with a line break": {
			{cmd: "mkdir $'a\\nb'; cd $'a\\nb'"},
			{cmd: "pwd", out: "{work}/a\nb\n"},
		},
		"PWD that lies": {
			{cmd: "mkdir d; cd d; PWD=/nowhere"},
			{cmd: "pwd", out: "{work}/d\n"},
		},
		"the stack of directories": {
			{cmd: "mkdir a b; pushd a >/dev/null; pushd ../b >/dev/null"},
			{cmd: "dirs -l; popd", out: "{work}/b {work}/a {work}\n{work}/a {work}\n"},
			{cmd: "popd >/dev/null; pwd", out: "{work}\n"},
			{cmd: "popd", err: "directory stack empty", code: 1},
		},
		"functions": {
			{cmd: "f() { local v=$1; echo \"f $v\"; }; g() { cat <<E\nhere $1\nE\n}; export -f g; function h-2 { f h; }"},
			{cmd: "f 1; g 2; bash -c 'g 3'; h-2; bash -c 'type f' 2>/dev/null || echo local",
				out: "f 1\nhere 2\nhere 3\nf h\nlocal\n"},
			{cmd: "unset -f f"},
			{cmd: "f", err: "f: command not found", code: 127},
		},
		"functions with patterns": {
			{cmd: "shopt -s extglob\nf() { case $1 in @(a|b)*) echo yes;; *) echo no;; esac; }"},
			{cmd: "f abc; f cab; shopt extglob", out: "yes\nno\nextglob        \ton\n"},
			{cmd: "shopt -u extglob"},
			{cmd: "f abc; shopt extglob", out: "no\nextglob        \toff\n", code: 1},
		},
		"functions in place of builtins": {
			{cmd: `echo() { builtin printf 'mine %s\n' "$*"; }; printf() { builtin echo no; }; declare() { :; }; eval() { :; }
				set() { :; }; unset() { :; }; source() { :; }; shopt() { :; }; alias() { :; }; exit() { builtin exit 9; }; x=1`},
			{cmd: "echo $x; y=2", out: "mine 1\n"},
			{cmd: "echo $y; exit 0", out: "mine 2\n", code: 9},
		},
		"aliases": {
			{cmd: "alias ll='echo LL' 'g=grep --color=never'"},
			{cmd: "ll x; echo ab | g a; alias ll", out: "LL x\nab\nalias ll='echo LL'\n"},
			{cmd: "unalias ll"},
			{cmd: "ll", err: "ll: command not found", code: 127},
		},
		"an alias and the next line": {
			{cmd: "alias hi='echo hi'\nhi", out: "hi\n"},
		},
		"an alias does not change functions": {
			{cmd: "f() { ll; }; ll() { echo function; }"},
			{cmd: "alias ll='echo alias'"},
			{cmd: "f; f", out: "function\nfunction\n"},
		},
		"aliases switched off": {
			{cmd: "shopt -u expand_aliases; alias echo=false"},
			{cmd: "echo ok", out: "ok\n"},
		},
		"umask": {
			{cmd: "umask 027"},
			{cmd: "umask; touch f; stat -c %a f", out: "0027\n640\n"},
		},
		"options": {
			{cmd: "set -o noglob; shopt -s nullglob globstar; shopt -u sourcepath"},
			{cmd: "echo *; shopt -p nullglob globstar sourcepath; set +f; echo no*", code: 0,
				out: "*\nshopt -s nullglob\nshopt -s globstar\nshopt -u sourcepath\n\n"},
		},
		"set -u": {
			{cmd: "set -u; x=1"},
			{cmd: "echo $x; echo $nope; echo no", out: "1\n", err: "nope: unbound variable", code: 127},
			{cmd: "echo ${x-gone}; set +u", out: "1\n"},
			{cmd: "echo $nope", out: "\n"},
		},
		"set -e ends the command and not the session": {
			{cmd: "x=1; set -e; y=2; false; echo no", code: 1},
			{cmd: "echo $x $y; (exit 3); echo no", out: "1 2\n", code: 3},
			{cmd: "set +e"},
			{cmd: "false; echo on", out: "on\n"},
		},
		"set -o pipefail": {
			{cmd: "set -o pipefail"},
			{cmd: "false | true", code: 1},
		},
		"set -x": {
			{cmd: "set -x"},
			{cmd: "echo a", out: "a\n", err: "+ echo a\n"},
			{cmd: "{ set +x; } 2>/dev/null"},
			{cmd: "echo b", out: "b\n"},
		},
		"set -C": {
			{cmd: "set -C; echo a > f"},
			{cmd: "echo b > f; x=1", err: "cannot overwrite"},
			{cmd: "cat f; echo $x", out: "a\n1\n"},
		},
		"set -a": {
			{cmd: "set -a"},
			{cmd: "AUTO=1"},
			{cmd: "env | grep AUTO; env | grep -c __cubby", out: "AUTO=1\n0\n", code: 1},
		},
		"set -o posix": {
			{cmd: "set -o posix; x=1"},
			{cmd: "echo $x; shopt -o posix", out: "1\nposix          \ton\n"},
			{cmd: "if", err: "syntax error", code: 2},
			{cmd: "set +o posix; echo $x", out: "1\n"},
		},
		"set -n is for one command": {
			{cmd: "x=1"},
			{cmd: "set -n; echo no"},
			{cmd: "echo $x", out: "1\n"},
		},
		"set -f, set -T and set -E": {
			{cmd: "set -fTE; x=1"},
			{cmd: "echo * $x; set +fTE", out: "* 1\n"},
		},
		"arguments": {
			{cmd: "set -- 'a b' '' c; shift 0"},
			{cmd: `echo "$#|$1|$3"; shift`, out: "3|a b|c\n"},
			{cmd: `echo "$#|$1"`, out: "2|\n"},
		},
		"the status": {
			{cmd: "(exit 42)", code: 42},
			{cmd: "echo $?", out: "42\n"},
			{cmd: "echo $?", out: "0\n"},
		},
		"exit": {
			{cmd: "x=1; exit 7; echo no", code: 7},
			{cmd: "echo $x $?", out: "1 7\n"},
		},
		"exit in a function": {
			{cmd: "x=global; only=1; f() { local x=local l=1; local -a arr=(1); g; }; g() { local x=inner; local -n r=x; y=2; exit 4; }; f", code: 4},
			{cmd: "echo $x ${l-none} ${arr-none} $only $y; declare -p r", out: "global none none 1 2\n", err: "r: not found", code: 1},
		},
		"exit in a subshell": {
			{cmd: "(x=2; exit 3); echo $?; x=1", out: "3\n"},
			{cmd: "echo $x", out: "1\n"},
		},
		"set -e in a function": {
			{cmd: "set -e; x=global; f() { local x=local; false; }; f", code: 1},
			{cmd: "echo $x; set +e", out: "global\n"},
		},
		"a syntax error": {
			{cmd: "x=1"},
			{cmd: "x=2; if", err: "syntax error", code: 2},
			{cmd: "echo $x; echo 'open", err: "unexpected EOF", code: 2},
			{cmd: "echo $x", out: "1\n"},
		},
		"a syntax error on a later line": {
			{cmd: "x=1\necho before\n)", out: "before\n", err: "syntax error", code: 2},
			{cmd: "echo $x", out: "1\n"},
		},
		"exec replaces the shell": {
			{cmd: "x=1"},
			{cmd: "x=2; exec echo done", out: "done\n"},
			{cmd: "echo $x", out: "1\n"},
		},
		"exec with redirections only": {
			{cmd: "exec 3>&1 >f; echo in; echo out >&3; x=1", out: "out\n"},
			{cmd: "cat f; echo $x", out: "in\n1\n"},
		},
		"exec that fails": {
			{cmd: "x=1; exec nosuch", err: "not found", code: 127},
			{cmd: "echo $x", out: "1\n"},
		},
		"closed descriptors": {
			{cmd: "x=1; exec <&- >&- 2>&-"},
			{cmd: "echo $x", out: "1\n"},
		},
		"here documents": {
			{cmd: "cat <<'E'\n$x 'q' \"d\"\nE\ncat <<< word\nread -r a <<E\n$((1+1))\nE\n", out: "$x 'q' \"d\"\nword\n"},
			{cmd: "echo $a", out: "2\n"},
		},
		"standard input is the command's": {
			{cmd: "cat; read -r x || echo empty", out: "empty\n"},
		},
		"background jobs": {
			{cmd: "(sleep 0.1; echo bg > f) & wait; x=$!; echo $((x > 0))", out: "1\n"},
			{cmd: "cat f; echo $((x > 0))", out: "bg\n1\n"},
		},
		"a trap of EXIT": {
			{cmd: "trap 'echo bye $?' EXIT; x=1; echo hi", out: "hi\nbye 0\n"},
			{cmd: "echo $x", out: "1\n"},
			{cmd: "trap 'echo bye $?' EXIT; x=2; exit 5", out: "bye 5\n", code: 5},
			{cmd: "echo $x", out: "2\n"},
			{cmd: "set -e; trap 'echo bye $?; exit 8' EXIT; x=3; false", out: "bye 1\n", code: 8},
			{cmd: "echo $x; set +e", out: "3\n"},
		},
		"a trap of EXIT that goes": {
			{cmd: "trap 'echo no' EXIT; trap - EXIT; trap 'echo no' 0; trap 0; trap -p; x=1"},
			{cmd: "echo $x", out: "1\n"},
		},
		"traps are listed without ours": {
			{cmd: "trap; trap -p EXIT; trap 'a b' EXIT; trap -p", out: "trap -- 'a b' EXIT\n", err: "a: command not found"},
		},
		"a trap of EXIT in a subshell": {
			{cmd: "(trap 'echo sub' EXIT; true); echo main; x=1", out: "sub\nmain\n"},
			{cmd: "echo $x", out: "1\n"},
		},
		"traps of signals": {
			{cmd: `trap 'echo "got it"' USR1; trap '' INT`},
			{cmd: "kill -USR1 $$; trap -p USR1 INT; trap - USR1", out: "got it\ntrap -- 'echo \"got it\"' SIGUSR1\ntrap -- '' SIGINT\n"},
			{cmd: "trap -p", out: "trap -- '' SIGINT\n"},
		},
		"a trap of ERR": {
			{cmd: "trap 'echo err' ERR"},
			{cmd: "false; true", out: "err\n"},
			{cmd: "trap - ERR"},
			{cmd: "false", code: 1},
		},
		"a trap that is none": {
			{cmd: "trap 'x' NOSUCH; echo $?; x=1", out: "1\n", err: "NOSUCH"},
			{cmd: "echo $x", out: "1\n"},
		},
		"a trap of DEBUG is for one command": {
			{cmd: "trap 'd=1' DEBUG; x=1; trap - DEBUG; d=0; echo $d", out: "0\n"},
			{cmd: "shopt -s extdebug; trap 'false' DEBUG; echo no"},
			{cmd: "trap -p DEBUG; echo $x", out: "1\n"},
		},
		"SIGTERM": {
			{cmd: "x=1; kill -TERM $$; sleep 60", code: -1},
			{cmd: "echo $x", out: "1\n"},
		},
		"SIGKILL": {
			{cmd: "x=1"},
			{cmd: "x=2; cd /; kill -KILL $$", code: -1},
			{cmd: "echo $x; pwd", out: "1\n{work}\n"},
		},
		"the request's directory": {
			{cmd: "mkdir d e; cd e"},
			{cmd: "pwd", cwd: "{work}/d", out: "{work}/d\n"},
			{cmd: "pwd", out: "{work}/e\n"},
			{cmd: "cd ..; pwd", cwd: "{work}/d", out: "{work}\n"},
			{cmd: "pwd", out: "{work}\n"},
		},
		"the request's environment": {
			{cmd: "echo $A $BASE; env | grep -E '^(A|BASE)=' | sort", env: []string{"A=1", "BASE=other"}, out: "1 other\nA=1\nBASE=other\n"},
			{cmd: "echo ${A-none} $BASE", out: "none base\n"},
			{cmd: "A=mine"},
			{cmd: "echo $A; bash -c 'echo $A'", env: []string{"A=2"}, out: "2\n2\n"},
			{cmd: "echo $A; env | grep -c ^A=", out: "mine\n0\n", code: 1},
			{cmd: "A=changed", env: []string{"A=3"}},
			{cmd: "echo $A", out: "changed\n"},
			{cmd: "unset A", env: []string{"A=4"}},
			{cmd: "echo ${A-none}", out: "none\n"},
		},
		"the request's environment over an array": {
			{cmd: "arr=(1 2); declare -A m=([a]=b)"},
			{cmd: "echo $arr", env: []string{"arr=x", "m=y"}, out: "x\n"},
			{cmd: "echo ${arr[@]} ${m[@]}", out: "1 2 b\n"},
		},
		"an environment that bash would act on": {
			{cmd: "echo ok", env: []string{"SHELLOPTS=xtrace", "PS4=no", "IFS=o", "__cubby_mode=x", "_=y"}, out: "ok\n", err: "SHELLOPTS: readonly"},
			{cmd: "echo $PS4 && x=1", out: "+\n"},
			{cmd: "env | grep foo.bar", env: []string{"foo.bar=1"}, out: "foo.bar=1\n"},
		},
		"IFS, PATH and HOME": {
			{cmd: "IFS=:; PATH=/nowhere; HOME=/tmp"},
			{cmd: `v=a:b; builtin printf '%s\n' $v "$PATH" ~`, out: "a\nb\n/nowhere\n/tmp\n"},
			{cmd: "ls", err: "ls: command not found", code: 127},
		},
		"a program": {
			{cmd: "mkdir d; cd d; export E=1; n=2; alias env=false; env() { false; }"},
			{argv: []string{"bash", "-c", `pwd; echo "$E|$n|$1"`, "x", "a b"}, out: "{work}/d\n1||a b\n"},
			{argv: []string{"sh", "-c", "cd /; exit 3"}, code: 3},
			{argv: []string{"bash", "-c", "echo $A $Q", "$E"}, env: []string{"A=1"}, out: "1\n"},
			{argv: []string{"nosuch"}, err: "nosuch: not found", code: 127},
			{argv: []string{"/"}, err: "Is a directory", code: 126},
			{cmd: "pwd; echo $E", out: "{work}/d\n1\n"},
		},
		"two sessions": {
			{cmd: "x=1; cd /"},
			{in: "other", cmd: "echo ${x-none}; pwd; x=2", out: "none\n{work}\n"},
			{cmd: "echo $x", out: "1\n"},
			{in: "other", cmd: "echo $x", out: "2\n"},
		},
		"a large state": {
			{cmd: "for ((i = 0; i < 3000; i++)); do printf -v v$i %s $i; done; big=$(head -c 300000 /dev/zero | tr '\\0' x)"},
			{cmd: "echo $v2999 ${#big}", out: "2999 300000\n"},
		},
		"locale": {
			{cmd: "export LC_ALL=C; v=é"},
			{cmd: "echo ${#v}; export LC_ALL=C.UTF-8", out: "2\n"},
			{cmd: "echo ${#v} $v", out: "1 é\n"},
		},
		"sourcing and return": {
			{cmd: "echo 'S=1; cd /; return 4' > s; . ./s", code: 4},
			{cmd: "echo $S; pwd", out: "1\n/\n"},
		},
		"getopts goes on": {
			{cmd: "set -- -a -b; getopts ab o; echo $o", out: "a\n"},
			{cmd: "getopts ab o; echo $o", out: "b\n"},
		},
		"a file of BASH_ENV": {
			{cmd: "echo 'export ENVED=1' > {work}/rc; export BASH_ENV={work}/rc; bash -c 'echo $ENVED'", out: "1\n"},
			{cmd: "echo ${ENVED-none} $BASH_ENV; bash -c 'echo $ENVED'", out: "none {work}/rc\n1\n"},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.do(steps...)
		})
	}
}
