# Runs one command of a session shell: brings the shell to the state that the
# command before left, runs the command in it, and writes the state down when
# the shell ends, however it does.
#
# In: $@ is the command (__cubby_mode says what kind), __cubby_* the rest. All
# names here begin with __cubby_ but for the two that commands shall find: cd
# and trap. Functions of commands may be named like builtins, so the builtins
# are asked for as such from the load on.

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
	printf 'cubby: a session needs bash 4.4 or later; the image has %s\n' "$BASH_VERSION" >&2
	exit 126
fi
set +p
export -n "${!__cubby_@}"
unset -v __cubby_main

__cubby_say() { builtin printf 'cubby: session %s: %s\n' "$__cubby_name" "$1" >&2; }

# The state before did not come to its end: the shell that it made is not to
# be trusted, so another one begins without it.
__cubby_start_over() {
	builtin trap - EXIT
	builtin mapfile -d '' __cubby_environ </proc/self/environ
	# Not what PATH says, and before /usr/local, which is another user's in some images.
	PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin
	builtin command mv -f -- "$__cubby_dir/state" "$__cubby_dir/state.bad"
	builtin : >|"$__cubby_dir/loading"
	exec env -i "${__cubby_environ[@]}" \
		__cubby_note='its saved state could not be read and was put aside; this shell begins anew' \
		bash -p -c "$BASH_EXECUTION_STRING" bash "$@"
}

# What the file of a state sets beside variables, functions and aliases.
__cubby_loaded= __cubby_cwd=$__cubby_workspace __cubby_rc=0
__cubby_so=$SHELLOPTS __cubby_bo=$BASHOPTS __cubby_dirs=() __cubby_args=()
__cubby_traps() { builtin :; }

if [[ -n $__cubby_dir && -e $__cubby_dir/state ]]; then
	unset -v "${!__cubby_base_@}"
	# A signal says nothing about the state. Bash runs the trap of EXIT for
	# one that ends it, so these have traps of their own: it dies of the
	# signal, and the state stays as it is.
	__cubby_signals=(HUP INT USR1 USR2 PIPE ALRM TERM VTALRM XCPU)
	for __cubby_n in "${__cubby_signals[@]}"; do
		trap "builtin trap - EXIT $__cubby_n; builtin kill -$__cubby_n \$\$" "$__cubby_n"
	done
	printf . >>"$__cubby_dir/loading"
	trap '__cubby_start_over "$@"' EXIT
	# Not by "source": functions would say in their errors that they are of it.
	mapfile -d '' -t __cubby_state <"$__cubby_dir/state" || {
		trap - EXIT
		__cubby_say 'its saved state cannot be read at the moment; the command was not run'
		exit 126
	}
	eval "${__cubby_state[0]}" </dev/null >/dev/null 2>&1
	builtin unset -v __cubby_state
	[[ $__cubby_loaded == yes ]] || __cubby_start_over "$@"
	builtin trap - EXIT "${__cubby_signals[@]}"
	builtin : >|"$__cubby_dir/loading"
else
	for __cubby_n in "${!__cubby_base_@}"; do
		declare -gx "${__cubby_n#__cubby_base_}=${!__cubby_n}"
	done
	unset -v "${!__cubby_base_@}"
	# A bare cd leads to the workspace, and "cd ~" home.
	cd() {
		if [[ $# -eq 0 ]]; then
			builtin cd -- "$__cubby_workspace"
		else
			builtin cd "$@"
		fi
	}
	shopt -s expand_aliases
	__cubby_bo=$BASHOPTS
	if [[ -n $BASH_ENV && -r $BASH_ENV ]]; then
		source "$BASH_ENV"
	fi
fi
[[ -z $__cubby_note ]] || __cubby_say "$__cubby_note"

# Where it is: for this command only where the request says.
__cubby_oldpwd=${OLDPWD-}
if [[ -n $__cubby_at ]]; then
	builtin cd -- "$__cubby_at"
elif ! builtin cd -- "$__cubby_cwd" 2>/dev/null; then
	__cubby_say "$__cubby_cwd cannot be entered any more; this shell is in $__cubby_workspace"
	builtin cd -- "$__cubby_workspace" || builtin cd /
fi
__cubby_pwd=$PWD
for ((__cubby_n = ${#__cubby_dirs[@]} - 1; __cubby_n >= 0; __cubby_n--)); do
	builtin pushd -n -- "${__cubby_dirs[__cubby_n]}" >/dev/null
done
if [[ -n $__cubby_oldpwd ]]; then
	OLDPWD=$__cubby_oldpwd
else
	builtin unset -v OLDPWD
fi

# The request's own environment, and what it hides.
builtin declare -A __cubby_own __cubby_hid
for __cubby_n in "${!__cubby_env_@}"; do
	__cubby_own[${__cubby_n#__cubby_env_}]=${!__cubby_n}
done
builtin unset -v "${!__cubby_env_@}"
for __cubby_n in "${!__cubby_own[@]}"; do
	__cubby_hid[$__cubby_n]=${!__cubby_n@A}
	if [[ ${__cubby_hid[$__cubby_n]} == 'declare -'*([^ ])[aA]* ]]; then
		__cubby_hid[$__cubby_n]=$(builtin declare -p "$__cubby_n")
		builtin unset -v "$__cubby_n"
	fi
	builtin declare -gx "$__cubby_n=${__cubby_own[$__cubby_n]}"
done

if [[ $__cubby_mode == argv ]]; then
	builtin unset -v "${!__cubby_@}"
	exec -- "$@"
fi
__cubby_command=$1

# Runs in a subshell of the shell that ends. Its arguments are the shell's.
__cubby_save() {
	builtin set +aefuvCET
	builtin shopt -u extdebug
	# "exit" in a function leaves its local variables over the shell's own.
	__cubby_n=$((${#FUNCNAME[@]} - 1))
	((__cubby_n == 0)) || builtin set -- "${__cubby_args[@]}"
	for (( ; __cubby_n > 0; __cubby_n--)); do
		builtin mapfile -t __cubby_locals < <(__cubby_find_locals)
		for __cubby_var in "${__cubby_locals[@]}"; do
			if [[ -R $__cubby_var ]]; then
				builtin unset -n "$__cubby_var"
			else
				builtin unset -v "$__cubby_var"
			fi
		done
	done
	__cubby_now=$PWD
	[[ ${DIRSTACK[0]} != /* ]] || __cubby_now=${DIRSTACK[0]}
	if [[ -z $__cubby_at || $__cubby_now != "$__cubby_pwd" ]]; then
		__cubby_cwd=$__cubby_now
	fi
	if __cubby_print "$@" 2>/dev/null >|"$__cubby_dir/new"; then
		PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin
		exec -c mv -f -- "$__cubby_dir/new" "$__cubby_dir/state"
	fi
	__cubby_say 'its state could not be saved; it stays as it was before this command'
}

# Prints the state. What commands may have redefined comes last: it is read
# with what was there before.
__cubby_print() {
	builtin printf '# cubby session state 1\n# uid %s\n# name %s\n# cwd %s\n' \
		"$EUID" "$__cubby_name" "${__cubby_cwd//[$'\n\r']/?}" &&
		builtin printf '__cubby_cwd=%q __cubby_rc=%q __cubby_so=%q __cubby_bo=%q\n' \
			"$__cubby_cwd" "$__cubby_status" "$__cubby_so" "$__cubby_bo" &&
		__cubby_list __cubby_dirs "${DIRSTACK[@]:1}" &&
		__cubby_list __cubby_args "$@" &&
		(__cubby_print_variables) &&
		builtin umask -p &&
		builtin printf '__cubby_traps() {\n' &&
		builtin trap -p HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT TSTP TTIN \
			TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS &&
		{ [[ -z $__cubby_user_err ]] || builtin printf 'trap -- %q ERR\n' "$__cubby_user_err"; } &&
		builtin printf 'builtin :\n}\n' &&
		builtin alias -p &&
		builtin printf '__cubby_loaded=yes\nshopt -s extglob\n' &&
		builtin unset -f trap __cubby_{save,print,print_variables,list,find_locals,say,start_over,traps,status_is,options,read_trap} &&
		builtin declare -f &&
		builtin declare -F
}

__cubby_print_variables() {
	for __cubby_n in "${!__cubby_own[@]}"; do
		if [[ ${!__cubby_n-} == "${__cubby_own[$__cubby_n]}" ]]; then
			builtin unset -v "$__cubby_n"
			builtin eval "${__cubby_hid[$__cubby_n]}"
		fi
	done
	__cubby_env=${BASH_ENV@A}
	# What is this shell's own, or this command's.
	builtin unset -v "${!BASH_@}" "${!COMP_@}" "${!READLINE_@}" CUBBY_TREE DIRSTACK EPOCHREALTIME EPOCHSECONDS FUNCNAME GROUPS \
		HISTCMD LINENO PIPESTATUS POSIXLY_CORRECT PWD RANDOM SECONDS SHLVL SRANDOM _
	builtin eval "$__cubby_env"
	builtin eval "builtin unset -v ${!__cubby_*}; builtin declare -p"
}

# Prints an assignment of a list.
__cubby_list() {
	builtin printf '%s=(' "$1" && builtin shift &&
		{ (($# == 0)) || builtin printf '%q ' "$@"; } && builtin printf ')\n'
}

# Prints the names of variables that hide others: a global value given to them
# cannot be seen.
__cubby_find_locals() {
	__cubby_probe=7130917 IFS=$'\n'
	for __cubby_n in $(builtin compgen -v); do
		case $__cubby_n in
		__cubby_* | BASH* | FUNCNAME | DIRSTACK | GROUPS | PIPESTATUS | EUID | UID | PPID | SHELLOPTS | LINENO | RANDOM | \
			SRANDOM | SECONDS | EPOCH* | HISTCMD | _) builtin continue ;;
		esac
		if [[ -R $__cubby_n ]]; then
			builtin declare -gn "$__cubby_n=__cubby_probe"
			[[ ${!__cubby_n} == 7130917 ]] || builtin printf '%s\n' "$__cubby_n"
		elif [[ ${!__cubby_n@a} != *r* ]]; then
			builtin declare -g "$__cubby_n=7130917"
			[[ ${!__cubby_n} == 7130917 ]] || builtin printf '%s\n' "$__cubby_n"
		fi
	done 2>/dev/null
}

__cubby_status_is() { return "$1"; }

# The EXIT trap of the shell; that of the command comes after it.
__cubby_user_exit=
__cubby_at_exit='{ __cubby_status=$? __cubby_so=$SHELLOPTS __cubby_bo=$BASHOPTS; builtin set +ex; } 2>/dev/null
	[[ -z $__cubby_dir ]] || ( __cubby_save "$@" )
	__cubby_status_is "$__cubby_status"
	builtin eval "$__cubby_user_exit"'

# Any trap, but that EXIT has two: the command's own and the one above. Bash
# hides the trap of ERR from a function and brings it back after it.
trap() {
	if ((BASH_SUBSHELL > 0)); then
		builtin trap "$@"
		return
	fi
	builtin trap - EXIT
	[[ -z $__cubby_user_exit ]] || builtin trap -- "$__cubby_user_exit" EXIT
	builtin trap - ERR
	[[ -z $__cubby_user_err ]] || builtin trap -- "$__cubby_user_err" ERR
	__cubby_had_err=$__cubby_user_err
	if builtin trap "$@"; then
		builtin set -- 0
	else
		builtin set -- $?
	fi
	__cubby_read_trap __cubby_user_exit "$(builtin trap -p EXIT)"
	__cubby_read_trap __cubby_user_err "$(builtin trap -p ERR)"
	[[ -n $__cubby_user_err || -z $__cubby_had_err ]] || builtin trap : ERR
	builtin trap -- "$__cubby_at_exit" EXIT
	return "$1"
}
builtin declare -ft trap

# Sets a variable to the command of a trap as bash prints it.
__cubby_read_trap() {
	builtin eval "__cubby_words=(${2#trap})"
	builtin printf -v "$1" %s "${__cubby_words[1]-}"
}

# Brings the options to those of the state; those of "set -o" that would act
# on what comes still are left for the command's own first line.
__cubby_options() {
	local IFS=: o on=
	for o in $SHELLOPTS; do
		[[ :$__cubby_so: == *:"$o":* ]] || builtin set +o "$o"
	done
	for o in $__cubby_so; do
		case $o in
		noexec | onecmd | privileged | restricted) ;;
		*) [[ :$SHELLOPTS: == *:"$o":* ]] || on+=" -o $o" ;;
		esac
	done
	[[ -z $on ]] || __cubby_command="builtin set$on"$'\n'$__cubby_command
	for o in $BASHOPTS; do
		[[ :$__cubby_bo: == *:"$o":* ]] || builtin shopt -u "$o"
	done
	for o in $__cubby_bo; do
		[[ :$BASHOPTS: == *:"$o":* ]] || builtin shopt -s "$o"
	done
	[[ -z $on ]]
} 2>/dev/null

__cubby_traps
builtin set -- "${__cubby_args[@]}"
__cubby_user_err=$(builtin trap -p ERR)
__cubby_read_trap __cubby_user_err "$__cubby_user_err"
builtin trap -- "$__cubby_at_exit" EXIT
__cubby_options && [[ -z $__cubby_user_err ]] || __cubby_rc=0
__cubby_status_is "$__cubby_rc"
