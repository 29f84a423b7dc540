# Written by cubby. /etc/profile sets another PATH than the sandbox's, without
# what its image and its user installed. A login shell keeps the one that it was
# started with.
if [ -r "/proc/$$/environ" ]; then
  cubby_path=$(tr '\0' '\n' <"/proc/$$/environ" 2>/dev/null | sed -n 's/^PATH=//p' | head -n 1)
  [ -z "$cubby_path" ] || PATH=$cubby_path
  unset cubby_path
fi
# Root takes no programs from a home that is not its own, which HOME may be: others can
# write to theirs, and to /tmp.
[ -O / ] && { [ "$HOME" != ~root ] || [ ! -O "$HOME" ]; } || for cubby_dir in "$HOME/.npm-global/bin" "$HOME/.local/bin"; do
  case ":$PATH:" in
    *":$cubby_dir:"*) ;;
    *) PATH=$cubby_dir:$PATH ;;
  esac
done
unset cubby_dir
export PATH
